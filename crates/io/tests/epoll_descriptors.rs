//! The epoll driver without descriptors: alone in its process, whose limit it lowers.

#[expect(dead_code, reason = "the rest of the suite runs in another binary")]
mod suite;

#[path = "suite/descriptors.rs"]
mod descriptors;

#[test]
fn running_out_of_descriptors() {
    descriptors::running_out(|| tautline_io::epoll::Driver::new().unwrap());
}
