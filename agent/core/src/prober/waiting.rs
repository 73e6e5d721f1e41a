//! Targets that are due and wait for a place in flight: a queue for each standing, first in, first
//! out.

use super::target::Target;

/// End of a queue.
pub(super) const NONE: u32 = u32::MAX;

/// What may be expected of a target's probe, by the last one; in the order of the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It ends before its deadline, well or badly.
    Answering,
    /// Nothing: there has been none.
    Untried,
    /// It holds its place until its deadline, or its target is sick.
    Suspect,
}

/// The queues, linked through [`Target::link`].
#[derive(Debug)]
pub(super) struct Waiting {
    queues: [Queue; 3],
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    head: u32,
    tail: u32,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { queues: [Queue { head: NONE, tail: NONE }; 3] }
    }
}

impl Waiting {
    pub(super) fn any(&self, standing: Standing) -> bool {
        self.queues[standing as usize].head != NONE
    }

    pub(super) fn push(&mut self, targets: &mut [Target], index: u32, standing: Standing) {
        let queue = &mut self.queues[standing as usize];
        targets[index as usize].link = NONE;
        match queue.tail {
            NONE => queue.head = index,
            tail => targets[tail as usize].link = index,
        }
        queue.tail = index;
    }

    pub(super) fn pop(&mut self, targets: &mut [Target], standing: Standing) -> Option<u32> {
        let queue = &mut self.queues[standing as usize];
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
}
