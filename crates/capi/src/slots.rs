use tautline::ConnId;

/// The open connections of a loop by the numbers that a program knows. A number is never used twice.
#[derive(Default)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

struct Slot {
    /// Number of uses, from 1.
    generation: u32,
    conn: Option<ConnId>,
}

impl Slots {
    /// Adds a connection, and returns its number.
    pub(crate) fn insert(&mut self, conn: ConnId) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, conn: None });
            // A loop never has four billion connections.
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        let slot = &mut self.slots[index as usize];
        slot.generation += 1;
        slot.conn = Some(conn);
        u64::from(slot.generation) << 32 | u64::from(index)
    }

    /// The connection of a number, if it is open.
    pub(crate) fn get(&self, id: u64) -> Option<ConnId> {
        let slot = self.slots.get(index(id))?;
        slot.conn.filter(|_| u64::from(slot.generation) == id >> 32)
    }

    /// Removes a connection.
    pub(crate) fn remove(&mut self, id: u64) {
        if self.get(id).is_none() {
            return;
        }
        let slot = &mut self.slots[index(id)];
        slot.conn = None;
        // A slot whose uses are used up stays empty, so that no number comes again.
        if slot.generation < u32::MAX {
            self.free.extend(u32::try_from(index(id)));
        }
    }
}

const fn index(id: u64) -> usize {
    (id & 0xffff_ffff) as usize
}
