//! The session's state without what only parsed statements need: a query whose plan is kept needs a copy of it, and
//! copies of the names of all functions take longer than the rest of its planning.

use std::sync::Arc;

use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use parking_lot::Mutex;

use crate::kept_plans::SettingsVersion;

/// What the clones of a session share.
#[derive(Clone, Default)]
pub(super) struct LeanState(Arc<Mutex<Option<(SettingsVersion, SessionState)>>>);

impl LeanState {
    /// A copy of the session's state with these settings, without scalar functions by name. Those that a plan calls are
    /// in the plan.
    pub fn get(
        &self,
        version: SettingsVersion,
        full: impl FnOnce() -> SessionState,
    ) -> SessionState {
        let known = self.0.lock();
        if let Some((of, state)) = known.as_ref()
            && *of == version
        {
            return state.clone();
        }
        drop(known);
        let mut state = full();
        let names: Vec<String> = state.scalar_functions().keys().cloned().collect();
        for name in names {
            // An alias is gone with its function.
            state.deregister_udf(&name).ok();
        }
        let lean = state.clone();
        let before = self.0.lock().replace((version, lean));
        drop(before);
        state
    }
}
