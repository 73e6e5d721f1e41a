//! A plain prober on tokio-uring: so many tasks, each of which connects, asks, reads and closes, over
//! and over. It has no schedule, and cannot end a connect that hangs.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use sickbay_lab::farm::Farm;
use sickbay_lab::namespace::Namespace;
use sickbay_lab::network::Family;
use tokio_uring::net::TcpStream;

use super::subject::{Gate, Subject};
use super::targets::{Kind, request};

/// Starts one over so many targets; it stands still.
pub(crate) fn start(
    home: &Namespace,
    cpu: usize,
    (count, kind): (u32, Kind),
    task_count: u32,
) -> Result<Subject> {
    Subject::thread("tokio-uring", home, cpu, move |gate| {
        let gate = Arc::clone(gate);
        tokio_uring::start(run(gate, count, kind, task_count))
    })
}

async fn run(gate: Arc<Gate>, count: u32, kind: Kind, task_count: u32) -> Result<()> {
    let requests: Rc<[Vec<u8>]> = (0..count).map(|index| request(index).into_bytes()).collect();
    let next = Rc::new(Cell::new(0));
    let tasks: Vec<_> = (0..task_count)
        .map(|_| {
            let (gate, requests, next) =
                (Arc::clone(&gate), Rc::clone(&requests), Rc::clone(&next));
            tokio_uring::spawn(async move {
                let (mut good, mut failed) = (0_u64, 0_u64);
                while !gate.is_stopping() {
                    if gate.is_shut() {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                        continue;
                    }
                    let index: u32 = next.get();
                    next.set((index + 1) % count);
                    let is_good = probe(index, kind, &requests[index as usize]).await;
                    good += u64::from(is_good);
                    failed += u64::from(!is_good);
                }
                (good, failed)
            })
        })
        .collect();
    let (mut good, mut failed) = (0, 0);
    for task in tasks {
        let (task_good, task_failed) = task.await?;
        (good, failed) = (good + task_good, failed + task_failed);
    }
    ensure!(failed <= good, "{failed} of {} probes failed", good + failed);
    Ok(())
}

async fn probe(index: u32, kind: Kind, request: &[u8]) -> bool {
    let Ok(stream) = TcpStream::connect(Farm::address(Family::V4, index)).await else {
        return false;
    };
    if kind.is_tcp() {
        return true;
    }
    let (written, _) = stream.write_all(request.to_vec()).await;
    if written.is_err() {
        return false;
    }
    let (read, buffer) = stream.read(Vec::with_capacity(2048)).await;
    read.is_ok() && buffer.starts_with(b"HTTP/1.1 200")
}
