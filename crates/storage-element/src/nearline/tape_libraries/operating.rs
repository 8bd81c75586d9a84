//! What an operator wants of drives and tapes.

use super::catalogue::may_stop;
use super::{LibraryTask, TapeLibraries, accounting};
use crate::tape_operator::{OperatorError, OperatorOrder, OperatorReply, ReplySender};
use penstock_tape::drive_pool::DriveState;
use penstock_tape::mount_account::tape_metrics;
use penstock_tape::ok_to_stop::StopTarget;
use penstock_tape::record::{Tape, TapeState};
use penstock_tape::relabel::RelabelOrder;
use penstock_tape::request::{DriveName, LibraryName, TapeName};
use penstock_tape::request_engine::Input;
use penstock_tape::tape_care::CareStep;
use std::sync::Arc;
use std::time::Duration;

/// How long a drive may take to let go of its tape.
const MEND_WAIT: Duration = Duration::from_secs(20);

impl TapeLibraries {
    pub(super) async fn take_operator_order(
        &mut self,
        order: OperatorOrder,
        reply: ReplySender,
    ) -> Vec<LibraryTask> {
        let done = match order {
            OperatorOrder::MayStop(name) => {
                self.ask_whether_it_may_stop(&name, reply);
                return Vec::new();
            }
            OperatorOrder::Account(since) => {
                let account = accounting::account(self, since);
                // Whoever asked may have gone.
                let _ = reply.send(Ok(OperatorReply::Account(Box::new(account))));
                return Vec::new();
            }
            OperatorOrder::Metrics(usage) => {
                let ledger = &self.engine.live().mounts;
                let metrics = tape_metrics(ledger, &usage, self.now_ns());
                let _ = reply.send(Ok(OperatorReply::Metrics(metrics)));
                return Vec::new();
            }
            OperatorOrder::DriveUp(drive) => self.drive_up(drive).await,
            OperatorOrder::DriveDown(drive) => self.drive_down(drive),
            OperatorOrder::Tape(tape, state) => self.change_tape(tape, state),
            OperatorOrder::Repack { tape, together } => self.repack(tape, together),
            OperatorOrder::StopRepack(tape) => self.stop_repack(tape),
            OperatorOrder::Verify(tape) => self.verify(tape),
            OperatorOrder::Relabel(tape) => self.relabel(tape),
            OperatorOrder::HoldBackground(span) => Ok(self.hold_background(span)),
        };
        let (result, orders) = match done {
            Ok(orders) => (Ok(OperatorReply::Done), orders),
            Err(why) => (Err(why), Vec::new()),
        };
        // Whoever asked may have gone.
        let _ = reply.send(result);
        orders
    }

    async fn drive_up(&mut self, drive: DriveName) -> Result<Vec<LibraryTask>, OperatorError> {
        let library = self.library_of.get(&drive);
        let library = library.and_then(|library| self.libraries.get(library));
        let library = Arc::clone(library.ok_or(OperatorError::Unknown("drive"))?);
        let known = self.engine.live().drives.0.get(&drive);
        if !known.is_some_and(|known| matches!(known.state, DriveState::Down { .. })) {
            return Ok(Vec::new());
        }
        let mended = drive.clone();
        let mended = tokio::task::spawn_blocking(move || library.mend_drive(&mended));
        match tokio::time::timeout(MEND_WAIT, mended).await {
            Ok(Ok(Ok(()))) => Ok(self.input(Input::DriveUp(drive))),
            Ok(Ok(Err(_))) => Err(OperatorError::Unknown("drive")),
            Ok(Err(_)) | Err(_) => Err(OperatorError::Busy),
        }
    }

    fn drive_down(&mut self, drive: DriveName) -> Result<Vec<LibraryTask>, OperatorError> {
        if !self.engine.live().drives.0.contains_key(&drive) {
            return Err(OperatorError::Unknown("drive"));
        }
        Ok(self.input(Input::DriveDown(drive)))
    }

    fn change_tape(
        &mut self,
        tape: TapeName,
        state: TapeState,
    ) -> Result<Vec<LibraryTask>, OperatorError> {
        self.known_tape(&tape)?;
        if self.engine.live().retired.contains(&tape) {
            return Err(OperatorError::TapeState {
                tape,
                state: "not configured",
                remedy: "raise `count` of `tapes` of its library first",
            });
        }
        self.care.hasten();
        Ok(self.input(Input::TapeChanged { tape, state }))
    }

    fn known_tape(&self, tape: &TapeName) -> Result<&Tape, OperatorError> {
        let known = self.engine.live().tapes.get(tape);
        known.ok_or(OperatorError::Unknown("tape"))
    }

    fn repack(
        &mut self,
        tape: TapeName,
        together: Vec<String>,
    ) -> Result<Vec<LibraryTask>, OperatorError> {
        if self.known_tape(&tape)?.state == TapeState::Disabled {
            return Err(OperatorError::TapeState {
                tape,
                state: "out of use",
                remedy: "make it read-only first, with `penstock tape read-only`",
            });
        }
        Ok(self.order_repack(tape, RelabelOrder::Operator, together))
    }

    fn stop_repack(&mut self, tape: TapeName) -> Result<Vec<LibraryTask>, OperatorError> {
        let state = self.known_tape(&tape)?.state;
        let care = self.engine.live().care.get(&tape);
        if care.is_none_or(|care| care.repack.is_none()) {
            return Ok(Vec::new());
        }
        let mut orders = self.forget_repack(&tape);
        orders.extend(self.care_step(tape.clone(), CareStep::RepackEnded));
        if state == TapeState::ReadOnly && !self.engine.live().relabeling.contains(&tape) {
            let state = TapeState::Active;
            orders.extend(self.input(Input::TapeChanged { tape, state }));
        }
        Ok(orders)
    }

    fn verify(&mut self, tape: TapeName) -> Result<Vec<LibraryTask>, OperatorError> {
        self.known_tape(&tape)?;
        if !self.engine.live().is_readable(&tape) {
            return Err(OperatorError::TapeState {
                tape,
                state: "not in use",
                remedy: "enable it first",
            });
        }
        let due_ns = self.now_ns();
        let orders = self.care_step(tape, CareStep::VerificationDue { due_ns });
        self.care.hasten();
        Ok(orders)
    }

    fn relabel(&mut self, tape: TapeName) -> Result<Vec<LibraryTask>, OperatorError> {
        self.known_tape(&tape)?;
        self.give_up(&tape, RelabelOrder::Operator).map_err(|why| {
            let why = why.to_string();
            OperatorError::Kept { tape, why }
        })
    }

    fn hold_background(&mut self, span: Duration) -> Vec<LibraryTask> {
        let span_ns = i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
        let span_ns = span_ns.saturating_mul(i64::from(self.factor));
        let until_ns = self.now_ns().saturating_add(span_ns);
        self.care.hasten();
        self.input(Input::HoldBackground { until_ns })
    }

    /// On another thread, since all copies on tape are looked through.
    fn ask_whether_it_may_stop(&self, name: &str, reply: ReplySender) {
        let (live, namespace) = (self.engine.live().clone(), Arc::clone(&self.namespace));
        let drive = DriveName(name.into());
        let target = match (
            live.drives.0.contains_key(&drive),
            live.tapes.get(&TapeName(name.into())),
        ) {
            (true, _) => StopTarget::Drive(drive),
            (false, Some(_)) => StopTarget::Tape(TapeName(name.into())),
            (false, None) => StopTarget::Library(LibraryName(name.into())),
        };
        let is_known = !matches!(&target, StopTarget::Library(library) if !self.libraries.contains_key(library));
        if !is_known {
            let _ = reply.send(Err(OperatorError::Unknown("drive, library or tape")));
            return;
        }
        tokio::task::spawn_blocking(move || {
            let answer = may_stop(&namespace, &live, &target);
            let answer = answer.map_err(|why| OperatorError::Namespace(why.to_string()));
            let _ = reply.send(answer.map(OperatorReply::Answer));
        });
    }
}
