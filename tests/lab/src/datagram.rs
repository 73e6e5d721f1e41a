//! Datagrams: of a client, waited for as long as the socket says, whatever signal comes meanwhile; and
//! of backends that say who they are.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::thread;

use crate::network::Network;

/// Has every backend answer datagrams to `to`, an address of its own, with its name, until the test
/// ends.
///
/// # Errors
/// A backend cannot bind it.
pub fn answer_with_names(network: &Network, to: SocketAddr) -> io::Result<()> {
    for backend in &network.backends {
        let socket = backend.namespace.run(|| UdpSocket::bind(to))?;
        let name = backend.name.clone();
        thread::spawn(move || {
            let mut datagram = [0; 16];
            while let Ok((_, client)) = socket.recv_from(&mut datagram) {
                // Whoever asked may be gone.
                let _not_sent = socket.send_to(name.as_bytes(), client);
            }
        });
    }
    Ok(())
}

/// Receives one datagram into `bytes`; its length.
///
/// With a timeout the kernel gives a receive up for any signal, and does not begin it again
/// (signal(7)): that says nothing of whoever was asked.
///
/// # Errors
/// None came in the socket's time, or the peer refuses.
pub fn receive(socket: &UdpSocket, bytes: &mut [u8]) -> io::Result<usize> {
    loop {
        match socket.recv(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            received => return received,
        }
    }
}
