use crate::plan::Plan;
use arc_swap::ArcSwap;
use std::sync::Arc;

/// The plan of the moment, which all loops share. Clones are the same one.
///
/// A request keeps the plan that it began with, so a reload ends nothing.
#[derive(Clone, Debug)]
pub struct Live(Arc<ArcSwap<Plan>>);

impl Live {
    /// Begins with this plan.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(plan)))
    }

    /// The plan for a new request.
    #[must_use]
    pub fn plan(&self) -> Arc<Plan> {
        self.0.load_full()
    }

    /// Gives new requests another plan.
    pub fn replace(&self, plan: Plan) -> Arc<Plan> {
        let plan = Arc::new(plan);
        self.0.store(plan.clone());
        plan
    }
}
