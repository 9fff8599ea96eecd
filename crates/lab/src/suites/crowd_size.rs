use tautline::layers::io::machine::OwnDescriptors;

/// Connections of the steps before the last one.
const STEPS: [usize; 2] = [1_000, 100_000];

/// Size of the crowd.
#[derive(Clone, Copy, Debug)]
pub struct CrowdSize {
    /// Connections in the end.
    pub connections: usize,
    /// Most connections in one table of descriptors. Default: the room of a table.
    pub per_table: Option<usize>,
    /// The program's promise, without which there is no such suite.
    pub own: Option<OwnDescriptors>,
}

impl Default for CrowdSize {
    fn default() -> Self {
        Self { connections: 1_000_000, per_table: None, own: None }
    }
}

impl CrowdSize {
    /// Connections before each measurement of echoes.
    pub(super) fn steps(&self) -> Vec<usize> {
        STEPS.into_iter().filter(|&step| step < self.connections).chain([self.connections]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_end_with_the_number_that_was_asked_for() {
        let steps = |connections| CrowdSize { connections, ..CrowdSize::default() }.steps();
        assert_eq!(steps(1_000_000), [1_000, 100_000, 1_000_000]);
        assert_eq!(steps(2_000), [1_000, 2_000]);
        assert_eq!(steps(1_000), [1_000]);
        assert_eq!(steps(7), [7]);
    }
}
