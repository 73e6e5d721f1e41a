//! Datagrams of a client: waited for as long as the socket says, whatever signal comes meanwhile.

use std::io;
use std::net::UdpSocket;

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
