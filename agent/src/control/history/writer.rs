//! From the journal to the files: on the control thread, by tokio-uring's file operations.
//!
//! Events wait in a bounded queue while a write is under way, or while there is no room. Nothing
//! else of the agent waits for it: what cannot be written in time is counted, and its number is left
//! out, so that a reader sees the gap.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_uring::fs::File;

use super::segments::{self, Known, Opened, Segment, segment_bytes_max};
use super::{HistoryEvent, Status};
use crate::control::journal::TransitionView;
use crate::fleet::History;

/// Events that wait to be written; more are lost and counted. Some 2 MB.
pub const QUEUE_EVENTS_MAX: usize = 8192;
/// Bytes that are written in one go.
const BATCH_BYTES: usize = 64 * 1024;
/// After a write that failed, before the next.
const RETRY: Duration = Duration::from_secs(1);
/// Between two looks into an empty queue.
const LOOK: Duration = Duration::from_millis(50);

/// Why no history can be kept. What may pass by itself (a full disk, one that fails) is none of
/// these: the agent starts, says so and tries again.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot keep the history in {}: {source}; it must be a directory that this user owns and nobody \
     else may write to: mend it, name another state_directory, or set history = false in [agent]",
    directory.display()
)]
pub struct HistoryError {
    pub(in crate::control) directory: PathBuf,
    pub(in crate::control) source: io::Error,
}

/// The side that events are put in.
#[derive(Debug)]
pub struct Queue {
    waiting: RefCell<VecDeque<TransitionView>>,
    /// Lost behind what waits, their numbers not left out yet.
    lost: Cell<u64>,
    closing: Cell<bool>,
    status: Arc<Status>,
}

impl Queue {
    /// An empty one.
    #[must_use]
    pub fn new(status: Arc<Status>) -> Self {
        let (lost, closing) = (Cell::new(0), Cell::new(false));
        Self { waiting: RefCell::default(), lost, closing, status }
    }

    /// Puts an event in; never waits.
    pub fn push(&self, event: &TransitionView) {
        let mut waiting = self.waiting.borrow_mut();
        // Behind a gap nothing is taken until the gap is written down, or it would be elsewhere.
        if 0 < self.lost.get() || QUEUE_EVENTS_MAX <= waiting.len() {
            self.lost.set(self.lost.get() + 1);
            self.status.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.push_back(event.clone());
    }

    /// Nothing more will come: the writer ends when it has written what is there.
    pub fn close(&self) {
        self.closing.set(true);
    }

    /// The lines of what waits first, numbered from `next` on, as many as one write takes; and how
    /// many they are.
    fn batch(&self, next: u64) -> (Vec<u8>, usize) {
        let (mut bytes, mut count) = (Vec::new(), 0);
        for (order, event) in (next..).zip(self.waiting.borrow().iter()) {
            let line = HistoryEvent::new(order, event.clone()).line();
            if 0 < count && BATCH_BYTES < bytes.len() + line.len() {
                break;
            }
            bytes.extend(line.into_bytes());
            count += 1;
        }
        (bytes, count)
    }

    /// These are written.
    fn written(&self, count: usize) {
        self.waiting.borrow_mut().drain(..count);
        self.status.written.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// The history's files, as they are written.
#[derive(Debug)]
pub struct Writer {
    history: History,
    queue: Rc<Queue>,
    status: Arc<Status>,
    /// `None` after a failure, until they can be opened again.
    open: Option<Open>,
    /// How far they were written before the failure.
    known: Option<Known>,
}

#[derive(Debug)]
struct Open {
    file: File,
    newest: Segment,
    older: VecDeque<Segment>,
    next: u64,
    /// Whether something was written that may not be on the disk yet.
    dirty: bool,
}

impl Open {
    fn of(opened: Opened) -> Self {
        let Opened { file, newest, older, next, cut: _ } = opened;
        Self { file: File::from_std(file), newest, older, next, dirty: false }
    }

    fn bytes(&self) -> u64 {
        self.newest.length + self.older.iter().map(|segment| segment.length).sum::<u64>()
    }
}

/// Opens the history, before anything runs; a torn line is cut off and told. `None` when there is no
/// room now, or the disk fails: [`Writer`] tries again.
///
/// # Errors
///
/// It can never be: it is no directory, or not ours alone.
pub fn prepare(history: &History) -> Result<Option<Opened>, HistoryError> {
    match segments::open(&history.directory, history.bytes_max, None) {
        Ok(opened) => {
            if 0 < opened.cut {
                tracing::warn!(
                    "the history ended in a line that was not whole ({} bytes, of a crash or a power \
                     cut): it is cut off",
                    opened.cut
                );
            }
            Ok(Some(opened))
        }
        Err(error) if may_pass(&error) => Ok(None),
        Err(source) => Err(HistoryError { directory: history.directory.clone(), source }),
    }
}

/// Whether it may pass by itself: no room, a disk that fails or was mounted read-only for that, no
/// descriptor.
fn may_pass(error: &io::Error) -> bool {
    const PASSING: [i32; 8] = [
        libc::ENOSPC,
        libc::EDQUOT,
        libc::EIO,
        libc::EROFS,
        libc::EMFILE,
        libc::ENFILE,
        libc::ENOMEM,
        libc::ESTALE,
    ];
    error.raw_os_error().is_some_and(|errno| PASSING.contains(&errno))
}

impl Writer {
    /// A writer of what is put into `queue`; `opened` is what [`prepare`] found.
    #[must_use]
    pub fn new(history: History, opened: Option<Opened>, queue: Rc<Queue>) -> Self {
        let status = Arc::clone(&queue.status);
        let open = opened.map(Open::of);
        let writer = Self { history, queue, status, open, known: None };
        writer.count_bytes();
        writer
    }

    /// Writes what comes, until the queue is closed and empty, or closed and nothing can be written.
    pub async fn run(mut self) {
        loop {
            match self.write_some().await {
                Ok(true) => self.is_well(),
                Ok(false) if self.queue.closing.get() => return,
                Ok(false) => tokio::time::sleep(LOOK).await,
                Err(error) => {
                    self.has_failed(&error);
                    if self.queue.closing.get() {
                        return;
                    }
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    /// Writes what one write takes; false when there is nothing.
    async fn write_some(&mut self) -> io::Result<bool> {
        if self.open.is_none() {
            let History { directory, bytes_max } = self.history.clone();
            let known = self.known.clone();
            let open = move || segments::open(&directory, bytes_max, known.as_ref());
            let opened = tokio::task::spawn_blocking(open).await?;
            self.open = Some(Open::of(opened?));
        }
        let open = self.open.as_mut().expect("it was opened just now");
        let (bytes, count) = self.queue.batch(open.next);
        if count == 0 {
            open.next += self.queue.lost.take();
            if !open.dirty {
                return Ok(false);
            }
            open.file.sync_data().await?;
            open.dirty = false;
            return Ok(true);
        }
        let length = bytes.len() as u64;
        let most = segment_bytes_max(self.history.bytes_max);
        if 0 < open.newest.length && most < open.newest.length + length {
            self.rotate().await?;
        }
        let open = self.open.as_mut().expect("a rotation leaves it open");
        let (written, _bytes) = open.file.write_all_at(bytes, open.newest.length).await;
        written?;
        open.newest.length += length;
        open.next += count as u64;
        open.dirty = true;
        self.queue.written(count);
        self.count_bytes();
        Ok(true)
    }

    /// Begins a new segment; the oldest go.
    async fn rotate(&mut self) -> io::Result<()> {
        let open = self.open.as_mut().expect("what is rotated is open");
        open.file.sync_data().await?;
        let (directory, bytes_max) = (self.history.directory.clone(), self.history.bytes_max);
        let (next, mut older) = (open.next, open.older.clone());
        older.push_back(open.newest.clone());
        // Opening and removing may take the file system a while.
        let made = tokio::task::spawn_blocking(move || {
            segments::trim(&mut older, 0, bytes_max)?;
            let (file, newest) = segments::create(&directory, next)?;
            io::Result::Ok((file, newest, older))
        });
        let (file, newest, older) = made.await??;
        *open = Open { file: File::from_std(file), newest, older, next, dirty: false };
        Ok(())
    }

    fn count_bytes(&self) {
        let bytes = self.open.as_ref().map_or(0, Open::bytes);
        self.status.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Says once that it fails, and begins anew: what was written in part is cut off then.
    fn has_failed(&mut self, error: &io::Error) {
        if let Some(Open { newest, next, .. }) = self.open.take() {
            self.known = Some(Known { path: newest.path, length: newest.length, next });
        }
        self.status.errors.fetch_add(1, Ordering::Relaxed);
        if !self.status.failing.swap(true, Ordering::Relaxed) {
            tracing::error!(
                "the history in {} cannot be written: {error}; probing and steering go on, and it \
                 goes on when it can be written again (up to {QUEUE_EVENTS_MAX} events wait for that)",
                self.history.directory.display()
            );
        }
    }

    /// Says once that it no longer fails.
    fn is_well(&self) {
        if self.status.failing.swap(false, Ordering::Relaxed) {
            let lost = self.status.lost.load(Ordering::Relaxed);
            tracing::info!(
                "the history is written again; {lost} events are missing in it since the start"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use tempfile::TempDir;

    use super::*;
    use crate::control::history::segments::list;
    use crate::control::history::tests::event;

    const MIB: u64 = 1 << 20;

    /// Writes so many events into the directory, and returns how that went.
    fn write(directory: &Path, count: u64) -> super::super::StatusView {
        let history = History { directory: directory.to_owned(), bytes_max: MIB };
        let status = Arc::new(Status::default());
        let seen = Arc::clone(&status);
        let opened = prepare(&history).unwrap();
        tokio_uring::start(async move {
            let queue = Rc::new(Queue::new(status));
            let writer = Writer::new(history, opened, Rc::clone(&queue));
            let task = tokio_uring::spawn(writer.run());
            for number in 0..count {
                queue.push(&event(&format!("web.b{number}"), "HTTP/1.1 500 No"));
                if number % 1_000 == 999 {
                    while !queue.waiting.borrow().is_empty() {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
            }
            queue.close();
            task.await.unwrap();
        });
        seen.view()
    }

    fn orders(directory: &Path) -> Vec<u64> {
        let segments = list(directory).unwrap();
        let texts = segments.iter().map(|segment| fs::read_to_string(&segment.path).unwrap());
        let text: String = texts.collect();
        let order = |line: &str| serde_json::from_str::<HistoryEvent>(line).unwrap().order;
        text.lines().map(order).collect()
    }

    #[test]
    fn events_are_written_in_order_and_the_next_run_goes_on() {
        let root = TempDir::new().unwrap();
        let directory = root.path().join("one");
        let status = write(&directory, 5);
        assert_eq!((status.written, status.lost, status.failing), (5, 0, false));
        write(&directory, 3);
        assert_eq!(orders(&directory), (1..=8).collect::<Vec<_>>());
    }

    #[test]
    fn files_never_take_more_than_their_bound_and_keep_the_newest() {
        let root = TempDir::new().unwrap();
        let directory = root.path().join("one");
        let status = write(&directory, 10_000);
        assert_eq!((status.written, status.lost), (10_000, 0));
        let segments = list(&directory).unwrap();
        let sum: u64 = segments.iter().map(|segment| segment.length).sum();
        assert!(sum <= MIB && MIB / 2 < sum, "{sum}");
        assert_eq!(status.bytes, sum);
        assert!(segments.iter().all(|segment| segment.length <= MIB / 8), "{segments:?}");
        let orders = orders(&directory);
        assert_eq!(orders.last(), Some(&10_000));
        assert!(orders.windows(2).all(|pair| pair[0] + 1 == pair[1]));
        assert!(1_000 < orders.len() && orders.len() < 10_000, "{}", orders.len());
    }

    #[test]
    fn what_finds_the_queue_full_is_counted_and_its_numbers_are_left_out() {
        let status = Arc::new(Status::default());
        let queue = Queue::new(Arc::clone(&status));
        for number in 0..QUEUE_EVENTS_MAX + 3 {
            queue.push(&event(&format!("web.b{number}"), ""));
        }
        assert_eq!(status.view().lost, 3);
        let (bytes, count) = queue.batch(1);
        assert!(0 < count && bytes.len() <= BATCH_BYTES);
        queue.written(count);
        // Room again, but the gap is not written down yet.
        queue.push(&event("web.late", ""));
        assert_eq!(status.view().lost, 4);
    }

    #[test]
    fn directory_that_is_a_file_is_refused_with_the_remedy() {
        let root = TempDir::new().unwrap();
        let directory = root.path().join("one");
        fs::write(&directory, "").unwrap();
        let history = History { directory, bytes_max: MIB };
        let error = prepare(&history).unwrap_err().to_string();
        assert!(error.contains("/one: ") && error.contains("history = false"), "{error}");
        assert_eq!(error.lines().count(), 1);
    }
}
