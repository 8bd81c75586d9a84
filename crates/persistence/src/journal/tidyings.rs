//! How clean-ups that are owed are stored, in every back end.

/// The version of the stored form.
pub(super) const TIDYING_VERSION: u32 = 2;
