//! A DNS server in a namespace, whose answers a test changes while it runs.
//!
//! It answers what it was last told to, to every question: records of the name and kind that is
//! asked, an error, or nothing at all. Over TCP too, which is asked when an answer does not fit into
//! a datagram (RFC 7766).

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, SRV};
use hickory_proto::rr::{Name, RData, Record, RecordType};

use crate::namespace::Namespace;

/// The port it answers on.
pub const NAME_SERVER: &str = "127.0.0.1:5353";
/// How often the thread looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);

/// How it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Manner {
    /// By its records; NXDOMAIN for a name without any.
    Records,
    /// The same, but in a datagram only that it does not fit.
    Truncates,
    /// With success, and nothing in it.
    Empty,
    /// With SERVFAIL.
    Fails,
    /// With NXDOMAIN.
    NoSuchName,
    /// Not at all.
    Hangs,
}

/// The running server. Dropping it stops it.
#[derive(Debug)]
pub struct NameServer {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    zone: Mutex<(Manner, Vec<Record>)>,
    questions: AtomicU32,
    streams: AtomicU32,
    stopping: AtomicBool,
}

impl NameServer {
    /// Answers on the loopback of `namespace`, with NXDOMAIN until it is told something else.
    ///
    /// # Errors
    /// When the port is taken.
    pub fn start(namespace: &Namespace) -> Result<Self> {
        Self::start_at(namespace, NAME_SERVER)
    }

    /// The same, at another address.
    ///
    /// # Errors
    /// When the port is taken.
    pub fn start_at(namespace: &Namespace, address: &str) -> Result<Self> {
        let bound = namespace.run(|| {
            Ok::<_, std::io::Error>((UdpSocket::bind(address)?, TcpListener::bind(address)?))
        });
        let (socket, listener) = bound.with_context(|| format!("cannot bind {address}"))?;
        socket.set_read_timeout(Some(LOOK))?;
        listener.set_nonblocking(true)?;
        let shared = Arc::new(Shared {
            zone: Mutex::new((Manner::NoSuchName, Vec::new())),
            questions: AtomicU32::new(0),
            streams: AtomicU32::new(0),
            stopping: AtomicBool::new(false),
        });
        let (for_datagrams, for_streams) = (Arc::clone(&shared), Arc::clone(&shared));
        let start = || std::thread::Builder::new().name("name-server".to_owned());
        let threads = vec![
            start().spawn(move || serve(&socket, &for_datagrams))?,
            start().spawn(move || serve_streams(&listener, &for_streams))?,
        ];
        Ok(Self { shared, threads })
    }

    /// Answers in another way from now on, by the records it has.
    pub fn set_manner(&self, manner: Manner) {
        self.shared.zone.lock().unwrap_or_else(PoisonError::into_inner).0 = manner;
    }

    /// Answers by these records from now on.
    pub fn set_records(&self, records: Vec<Record>) {
        let mut zone = self.shared.zone.lock().unwrap_or_else(PoisonError::into_inner);
        *zone = (Manner::Records, records);
    }

    /// Questions that came in datagrams, whatever was answered.
    #[must_use]
    pub fn questions(&self) -> u32 {
        self.shared.questions.load(Ordering::Relaxed)
    }

    /// Questions that came over TCP and were answered.
    #[must_use]
    pub fn streams(&self) -> u32 {
        self.shared.streams.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn manner(&self) -> Manner {
        self.zone.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic there was printed there; here is no place for another.
            let _printed = thread.join();
        }
    }
}

/// An address of a name.
///
/// # Panics
/// When `name` is none.
#[must_use]
pub fn address(name: &str, ttl: u32, address: impl Into<IpAddr>) -> Record {
    let data = match address.into() {
        IpAddr::V4(address) => RData::A(A(address)),
        IpAddr::V6(address) => RData::AAAA(AAAA(address)),
    };
    Record::from_rdata(parsed(name), ttl, data)
}

/// A service's host.
///
/// # Panics
/// When a name is none.
#[must_use]
pub fn service(
    name: &str,
    ttl: u32,
    (priority, weight, port): (u16, u16, u16),
    host: &str,
) -> Record {
    let service = SRV::new(priority, weight, port, parsed(host));
    Record::from_rdata(parsed(name), ttl, RData::SRV(service))
}

fn parsed(name: &str) -> Name {
    Name::from_utf8(format!("{name}.")).expect("a test's name is one")
}

fn serve(socket: &UdpSocket, shared: &Shared) {
    let mut datagram = [0; 4096];
    while !shared.stopping.load(Ordering::Relaxed) {
        let Ok((length, client)) = socket.recv_from(&mut datagram) else {
            continue;
        };
        shared.questions.fetch_add(1, Ordering::Relaxed);
        if let Some(mut answer) = answer(&datagram[..length], shared) {
            if shared.manner() == Manner::Truncates {
                answer = answer.truncate();
            }
            // Whoever asked may be gone.
            let _gone: std::io::Result<usize> = send(socket, &answer, client);
        }
    }
}

/// One question a connection: more is not asked by whoever is asked for one name.
fn serve_streams(listener: &TcpListener, shared: &Shared) {
    while !shared.stopping.load(Ordering::Relaxed) {
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(LOOK);
            continue;
        };
        match answer_one(stream, shared) {
            Ok(()) => _ = shared.streams.fetch_add(1, Ordering::Relaxed),
            Err(error) => eprintln!("a question over TCP: {error}"),
        }
    }
}

fn answer_one(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut question = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut question)?;
    let Some(answer) = answer(&question, shared) else { return Ok(()) };
    let bytes = answer.to_vec().map_err(std::io::Error::other)?;
    let length = u16::try_from(bytes.len()).map_err(std::io::Error::other)?;
    stream.write_all(&length.to_be_bytes())?;
    stream.write_all(&bytes)
}

fn send(socket: &UdpSocket, answer: &Message, client: SocketAddr) -> std::io::Result<usize> {
    let bytes = answer.to_vec().map_err(std::io::Error::other)?;
    socket.send_to(&bytes, client)
}

fn answer(datagram: &[u8], shared: &Shared) -> Option<Message> {
    let question = Message::from_vec(datagram).ok()?;
    let query = question.queries.first()?.clone();
    let (manner, records) = shared.zone.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut answer = Message::response(question.metadata.id, question.metadata.op_code);
    answer.metadata.recursion_desired = question.metadata.recursion_desired;
    answer.metadata.recursion_available = true;
    let of_name = |record: &&Record| record.name.to_lowercase() == query.name().to_lowercase();
    answer.metadata.response_code = match manner {
        Manner::Hangs => return None,
        Manner::Fails => ResponseCode::ServFail,
        Manner::NoSuchName => ResponseCode::NXDomain,
        Manner::Empty => ResponseCode::NoError,
        Manner::Records | Manner::Truncates if records.iter().any(|record| of_name(&record)) => {
            ResponseCode::NoError
        }
        Manner::Records | Manner::Truncates => ResponseCode::NXDomain,
    };
    if matches!(manner, Manner::Records | Manner::Truncates) {
        let asked = |record: &&Record| kind(record) == Some(query.query_type());
        let found = records.iter().filter(of_name).filter(asked).cloned();
        answer.add_answers(found.collect::<Vec<Record>>());
    }
    answer.add_query(query);
    Some(answer)
}

fn kind(record: &Record) -> Option<RecordType> {
    match record.data {
        RData::A(_) => Some(RecordType::A),
        RData::AAAA(_) => Some(RecordType::AAAA),
        RData::SRV(_) => Some(RecordType::SRV),
        _ => None,
    }
}
