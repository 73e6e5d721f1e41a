//! Targets that are due and wait for a place in flight: two queues, first in, first out.

use super::target::Target;

/// End of a queue.
pub(super) const NONE: u32 = u32::MAX;

/// The queues, linked through [`Target::link`].
#[derive(Debug)]
pub(super) struct Waiting {
    healthy: Queue,
    sick: Queue,
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    head: u32,
    tail: u32,
}

impl Default for Waiting {
    fn default() -> Self {
        let empty = Queue { head: NONE, tail: NONE };
        Self { healthy: empty, sick: empty }
    }
}

impl Waiting {
    pub(super) fn any(&self, sick: bool) -> bool {
        let queue = if sick { &self.sick } else { &self.healthy };
        queue.head != NONE
    }

    pub(super) fn push(&mut self, targets: &mut [Target], index: u32, sick: bool) {
        let queue = self.queue(sick);
        targets[index as usize].link = NONE;
        match queue.tail {
            NONE => queue.head = index,
            tail => targets[tail as usize].link = index,
        }
        queue.tail = index;
    }

    pub(super) fn pop(&mut self, targets: &mut [Target], sick: bool) -> Option<u32> {
        let queue = self.queue(sick);
        let index = queue.head;
        if index == NONE {
            return None;
        }
        queue.head = targets[index as usize].link;
        if queue.head == NONE {
            queue.tail = NONE;
        }
        Some(index)
    }

    fn queue(&mut self, sick: bool) -> &mut Queue {
        if sick { &mut self.sick } else { &mut self.healthy }
    }
}
