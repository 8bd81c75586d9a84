//! Unsigned numbers in databases that know signed ones only. Each number comes back as it was stored; those beyond 2^63 − 1,
//! which no counter of ours reaches, are ordered before the others.

/// As a database keeps it.
pub(crate) fn to_sql(value: u64) -> i64 {
    value.cast_signed()
}

/// What [`to_sql`] has stored.
pub(crate) fn from_sql(value: i64) -> u64 {
    value.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_as_they_were_stored() {
        for value in [0, 1, u64::from(u32::MAX), i64::MAX as u64, u64::MAX] {
            assert_eq!(from_sql(to_sql(value)), value);
        }
    }
}
