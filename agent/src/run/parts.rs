//! The parts of the running agent that its control plane and its members share.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use crate::board::Board;
use crate::confine::Confined;
use crate::control::drops::Drops;
use crate::control::journal::Journal;
use crate::fleet::Fleet;
use crate::kernel::Counters;
use crate::neighbours::Neighbours;
use crate::shard::Shards;

use super::unprobed::Unprobed;

/// How long the thread that looks up next hops is waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// What goes on whichever configuration is in force.
#[derive(Debug)]
pub(super) struct Lasting {
    pub(super) journal: Arc<Journal>,
    /// Samples of dropped packets, numbered from the agent's start on.
    pub(super) drops: Arc<Drops>,
    /// What came of giving up what is not needed; empty until then.
    pub(super) confined: Arc<OnceLock<Confined>>,
    /// When the agent was started.
    pub(super) started: Instant,
    /// The eBPF object, checked.
    pub(super) object: Arc<Cow<'static, [u8]>>,
}

impl Lasting {
    /// Of an agent that starts now.
    pub(super) fn begin(object: Cow<'static, [u8]>) -> Self {
        Self {
            journal: Arc::default(),
            drops: Arc::default(),
            confined: Arc::default(),
            started: Instant::now(),
            object: Arc::new(object),
        }
    }
}

/// What runs.
#[derive(Debug)]
pub(super) struct Parts {
    /// As its members are now; replaced as a whole.
    fleet: RwLock<Arc<Fleet>>,
    pub(super) board: Arc<Board>,
    pub(super) journal: Arc<Journal>,
    pub(super) counters: Counters,
    /// They own the bits of the backends that no shard owns.
    pub(super) unprobed: Unprobed,
    /// `None` until the shards run, and again when they have stopped.
    shards: Mutex<Option<Shards>>,
    /// `None` when nothing is steered, and when it has stopped.
    neighbours: Mutex<Option<Neighbours>>,
}

impl Parts {
    pub(super) fn new(
        fleet: Arc<Fleet>,
        board: Arc<Board>,
        journal: Arc<Journal>,
        counters: Counters,
    ) -> Self {
        let unprobed = Unprobed::new(Arc::clone(&board), Arc::clone(&journal), &fleet);
        let (shards, neighbours) = (Mutex::new(None), Mutex::new(None));
        Self { fleet: RwLock::new(fleet), board, journal, counters, unprobed, shards, neighbours }
    }

    /// The fleet as it is now.
    pub(super) fn fleet(&self) -> Arc<Fleet> {
        Arc::clone(&self.fleet.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The fleet is this from now on.
    pub(super) fn set_fleet(&self, fleet: Fleet) {
        *self.fleet.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(fleet);
    }

    /// The shards run.
    pub(super) fn set_shards(&self, shards: Shards) {
        *self.shards.lock().unwrap_or_else(PoisonError::into_inner) = Some(shards);
    }

    /// The shards, to be stopped.
    pub(super) fn take_shards(&self) -> Option<Shards> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// What `look` makes of the shards; `None` when none run.
    pub(super) fn with_shards<T>(&self, look: impl FnOnce(&mut Shards) -> T) -> Option<T> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(look)
    }

    /// Next hops are looked up.
    pub(super) fn set_neighbours(&self, neighbours: Option<Neighbours>) {
        *self.neighbours.lock().unwrap_or_else(PoisonError::into_inner) = neighbours;
    }

    /// What `look` makes of the thread that looks up next hops; `None` when none runs.
    pub(super) fn with_neighbours<T>(&self, look: impl FnOnce(&Neighbours) -> T) -> Option<T> {
        self.neighbours.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(look)
    }

    /// No next hop of these is told from now on; false when that could not be made sure of.
    pub(super) fn forget_next_hops(&self, backends: &[u32]) -> Option<bool> {
        self.with_neighbours(|it| it.change(Vec::new(), backends.to_vec(), PATIENCE))
    }

    /// Backends that take new flows.
    pub(super) fn healthy_count(&self) -> u32 {
        let pools = u32::try_from(self.fleet().pools.len()).expect("pools are counted in u32");
        let total: u64 = (0..pools).map(|pool| self.board.pool_count(pool)).sum();
        u32::try_from(total).expect("backends are counted in u32")
    }
}
