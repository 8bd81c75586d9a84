//! Records of a server that are held until others refer to them, with the memory that they take: a sender is not known, and
//! may send texts of any length.

use super::{OpenFile, User};
use penstock_model::observation::Text;
use std::collections::HashMap;

/// Beside its texts: the record, its places in tables and the heads of its texts.
const RECORD_BYTES: usize = 224;

/// What takes memory.
pub(super) trait HeldBytes {
    /// Of its texts, in bytes.
    fn text_bytes(&self) -> usize;
}

impl HeldBytes for User {
    fn text_bytes(&self) -> usize {
        let texts = [
            &self.protocol,
            &self.name,
            &self.client,
            &self.vo,
            &self.activity,
        ];
        let texts = texts.into_iter().flatten().chain([&self.id]);
        texts.map(|text| text.len()).sum()
    }
}

impl HeldBytes for OpenFile {
    fn text_bytes(&self) -> usize {
        self.path.as_ref().map_or(0, |path| path.len())
    }
}

/// Records by their numbers.
#[derive(Debug)]
pub(super) struct HeldRecords<T> {
    records: HashMap<u32, T>,
    bytes: usize,
}

impl<T> Default for HeldRecords<T> {
    fn default() -> HeldRecords<T> {
        HeldRecords {
            records: HashMap::new(),
            bytes: 0,
        }
    }
}

impl<T: HeldBytes> HeldRecords<T> {
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// Memory that they take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn get(&self, number: u32) -> Option<&T> {
        self.records.get(&number)
    }

    /// Gives the record that had the number.
    pub(super) fn insert(&mut self, number: u32, record: T) -> Option<T> {
        self.bytes += RECORD_BYTES + record.text_bytes();
        let before = self.records.insert(number, record)?;
        self.bytes -= RECORD_BYTES + before.text_bytes();
        Some(before)
    }

    pub(super) fn remove(&mut self, number: u32) -> Option<T> {
        let record = self.records.remove(&number)?;
        self.bytes -= RECORD_BYTES + record.text_bytes();
        Some(record)
    }

    /// Changes a record that is held.
    pub(super) fn update<R>(&mut self, number: u32, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        let record = self.records.get_mut(&number)?;
        let before = record.text_bytes();
        let changed = change(record);
        self.bytes = self.bytes + record.text_bytes() - before;
        Some(changed)
    }

    /// Gives their number.
    pub(super) fn clear(&mut self) -> u64 {
        let count = self.records.len() as u64;
        *self = HeldRecords::default();
        count
    }
}

/// Users of a server by their numbers, and their numbers by their ids.
#[derive(Debug, Default)]
pub(super) struct Users {
    records: HeldRecords<User>,
    numbers: HashMap<Text, u32>,
}

impl Users {
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// Memory that they take.
    pub(super) fn bytes(&self) -> usize {
        self.records.bytes()
    }

    pub(super) fn get(&self, number: u32) -> Option<&User> {
        self.records.get(number)
    }

    /// Of the user that was told last with this id.
    pub(super) fn number_of(&self, id: &str) -> Option<u32> {
        self.numbers.get(id).copied()
    }

    pub(super) fn insert(&mut self, number: u32, user: User) {
        let id = user.id.clone();
        if let Some(before) = self.records.insert(number, user) {
            self.forget_id(number, &before);
        }
        self.numbers.insert(id, number);
    }

    pub(super) fn remove(&mut self, number: u32) {
        if let Some(user) = self.records.remove(number) {
            self.forget_id(number, &user);
        }
    }

    fn forget_id(&mut self, number: u32, user: &User) {
        if self.number_of(&user.id) == Some(number) {
            self.numbers.remove(&user.id);
        }
    }

    /// Completes a user that is held. Its id stays.
    pub(super) fn update(&mut self, number: u32, change: impl FnOnce(&mut User)) {
        self.records.update(number, change);
    }

    /// Gives their number.
    pub(super) fn clear(&mut self) -> u64 {
        self.numbers = HashMap::new();
        self.records.clear()
    }
}
