//! How long operations of the databases of this process take. They are counted where they are made; here they become
//! intervals like all that is sampled.

use super::part::Part;
use serde::{Deserialize, Serialize};

/// A database of the process that samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DatabaseKind {
    /// Of the transfer service.
    Journal,
    /// Of the storage element.
    Namespace,
}

/// What a database has done since the start, and how it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DatabaseTotals {
    /// Operations that ended.
    pub operations: u64,
    /// From its request to its answer, of all operations together.
    pub operation_us: u64,
    /// Transactions, each of one operation or many.
    pub transactions: u64,
    /// Of all transactions together.
    pub transaction_us: u64,
    /// Operations that wait or are being made now.
    pub queued: u64,
    /// For how long the transaction that is being made has lasted; 0: none is.
    pub running_us: u64,
}

/// What it did in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DatabaseActivity {
    /// Operations that ended.
    pub operations: u64,
    /// From its request to its answer, of all of these together.
    pub operation_us: u64,
    /// Transactions that ended.
    pub transactions: u64,
    /// Of all of these together.
    pub transaction_us: u64,
    /// Operations that waited, integrated over time: divided by the interval, the mean length of the queue.
    pub queued_us: u64,
    /// For how long a transaction had lasted that had not ended: the longest that was seen.
    pub running_us: u64,
}

/// A database in an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseSample {
    pub kind: DatabaseKind,
    /// What it did.
    pub activity: DatabaseActivity,
}

impl DatabaseTotals {
    /// What happened since an earlier reading, an interval of so much time before this one.
    pub fn since(self, earlier: DatabaseTotals, covered_us: u64) -> DatabaseActivity {
        DatabaseActivity {
            operations: self.operations.saturating_sub(earlier.operations),
            operation_us: self.operation_us.saturating_sub(earlier.operation_us),
            transactions: self.transactions.saturating_sub(earlier.transactions),
            transaction_us: self.transaction_us.saturating_sub(earlier.transaction_us),
            queued_us: self.queued.saturating_mul(covered_us),
            running_us: self.running_us,
        }
    }
}

impl DatabaseActivity {
    /// Both together.
    pub fn plus(self, other: DatabaseActivity) -> DatabaseActivity {
        self.with(other, u64::saturating_add)
    }

    /// What is left of it without a part.
    pub(super) fn without(self, part: DatabaseActivity) -> DatabaseActivity {
        self.with(part, u64::saturating_sub)
    }

    /// So much of it as a part of its time is of all.
    pub(super) fn part(self, part: Part) -> DatabaseActivity {
        self.with(self, |count, _| part.of(count))
    }

    /// Joins all that is counted. The longest transaction stands.
    fn with(self, other: DatabaseActivity, join: impl Fn(u64, u64) -> u64) -> DatabaseActivity {
        DatabaseActivity {
            operations: join(self.operations, other.operations),
            operation_us: join(self.operation_us, other.operation_us),
            transactions: join(self.transactions, other.transactions),
            transaction_us: join(self.transaction_us, other.transaction_us),
            queued_us: join(self.queued_us, other.queued_us),
            running_us: self.running_us.max(other.running_us),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_a_difference_and_its_queue_an_area() {
        let earlier = DatabaseTotals {
            operations: 10,
            operation_us: 100,
            ..DatabaseTotals::default()
        };
        let now = DatabaseTotals {
            operations: 14,
            operation_us: 900,
            queued: 3,
            running_us: 70,
            ..earlier
        };
        let second = now.since(earlier, 1000);
        assert_eq!((second.operations, second.operation_us), (4, 800));
        assert_eq!((second.queued_us, second.running_us), (3000, 70));
        let both = second.plus(DatabaseActivity {
            operations: 1,
            running_us: 80,
            ..DatabaseActivity::default()
        });
        assert_eq!((both.operations, both.running_us), (5, 80));
        let half = Part {
            us: 500,
            of_us: 1000,
        };
        let left = second.without(second.part(half));
        assert_eq!(
            (left.operations, left.queued_us, left.running_us),
            (2, 1500, 70)
        );
    }
}
