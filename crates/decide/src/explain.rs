//! Why a rate fell: change points, the exact split into factors, the stage and the dimension that carry it, and one
//! rule for each known cause.
//!
//! Facts come in as [`signals::Signals`], wherever they are from. What no rule explains is called unexplained, with the
//! signals that are missing.

pub mod change;
pub mod signals;
pub mod split;
