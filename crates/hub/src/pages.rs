//! The members of a topic in pages. Each page is framed once after a change of its own, for all who want to know.

use crate::members::Members;
use crate::protocol::Object;
use tautline::layers::ws::{Kind, Prepared};

/// Most bytes of a page's names and identifiers. One member more fits a page that is empty.
const PAGE: usize = 16 << 10;
/// Bytes of a member beside its name and identifier.
const BESIDE: usize = 8;

/// The members of a topic, in the order of their identifiers.
#[derive(Default)]
pub(crate) struct Pages(Vec<Page>);

/// Members whose identifiers follow each other; at least one.
#[derive(Default)]
struct Page {
    members: Members,
    /// The message with these members, unless they have changed.
    frame: Option<Prepared>,
}

impl Pages {
    /// These pages, with a further member.
    pub(crate) fn with(mut self, (id, name): (&str, &str)) -> Self {
        self.insert(id, name);
        self
    }

    pub(crate) fn insert(&mut self, id: &str, name: &str) {
        if self.0.is_empty() {
            self.0.push(Page::default());
        }
        let at = self.page_of(id);
        let page = &mut self.0[at];
        page.members.insert(id, name);
        page.frame = None;
        if page.bytes() > PAGE && page.members.len() > 1 {
            let members = page.members.split_off_half();
            self.0.insert(at + 1, Page { members, frame: None });
        }
    }

    pub(crate) fn remove(&mut self, id: &str) {
        let at = self.page_of(id);
        let Some(page) = self.0.get_mut(at) else { return };
        if !page.members.remove(id) {
            return;
        }
        page.frame = None;
        let bytes = page.bytes();
        if self.0.get(at + 1).is_some_and(|next| bytes + next.bytes() <= PAGE / 2) {
            let next = self.0.remove(at + 1);
            self.0[at].members.append(next.members);
        }
        if self.0[at].members.is_empty() {
            self.0.remove(at);
            if let Some(first) = self.0.first_mut() {
                // It says now that it is the first.
                first.frame = None;
            }
        }
    }

    /// The messages with all members. The first replaces the list that a client has, and the others add to it.
    pub(crate) fn frames(&mut self, topic: &str) -> Vec<Prepared> {
        if self.0.is_empty() {
            return vec![frame(topic, &Members::default(), true)];
        }
        let frame_of = |(at, page): (usize, &mut Page)| {
            let Page { members, frame: made } = page;
            made.get_or_insert_with(|| frame(topic, members, at == 0)).clone()
        };
        self.0.iter_mut().enumerate().map(frame_of).collect()
    }

    /// Their memory, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let frame = |page: &Page| page.frame.as_ref().map_or(0, |frame| frame.frame().len());
        let pages = self.0.iter().map(|page| page.members.memory() + frame(page));
        self.0.capacity() * size_of::<Page>() + pages.sum::<usize>()
    }

    /// The number of the page in which this member is, or would be.
    fn page_of(&self, id: &str) -> usize {
        let begins_before = |page: &Page| page.members.ids().next().is_some_and(|first| first <= id);
        self.0.partition_point(begins_before).saturating_sub(1)
    }
}

impl Page {
    const fn bytes(&self) -> usize {
        self.members.bytes + BESIDE * self.members.len()
    }
}

fn frame(topic: &str, members: &Members, is_first: bool) -> Prepared {
    let all: Vec<_> = members.iter().collect();
    let all = serde_json::to_string(&all).unwrap_or_else(|_| "[]".into());
    let object = Object::new("members").text("topic", topic);
    let object = if is_first { object } else { object.raw("more", "true") };
    Prepared::new(Kind::Text, object.raw("members", &all).end().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::{PAGE, Pages};
    use crate::protocol::Answer;
    use std::collections::{BTreeMap, HashSet};

    type Plain = BTreeMap<String, String>;

    fn read(pages: &mut Pages) -> Plain {
        let mut members = Plain::new();
        for (at, frame) in pages.frames("room").iter().enumerate() {
            assert!(frame.payload().len() <= 2 * PAGE, "{}", frame.payload().len());
            let answer: Answer<'_> = serde_json::from_slice(frame.payload()).unwrap();
            assert_eq!((&*answer.action, answer.more), ("members", at > 0));
            for (id, name) in answer.members.unwrap() {
                assert_eq!(members.insert(id, name), None, "listed twice");
            }
        }
        members
    }

    fn frames(pages: &mut Pages) -> HashSet<*const u8> {
        pages.frames("room").iter().map(|frame| frame.frame().as_ptr()).collect()
    }

    #[test]
    fn pages_agree_with_a_plain_list_and_a_change_makes_few_of_them_anew() {
        let (mut pages, mut list) = (Pages::default(), Plain::new());
        let mut seed = 7_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let mut most = 0;
        // They become many, and then few.
        for turn in 0..6_000_u64 {
            let id = format!("host/{}", random(3_000));
            let before = pages.frames("room");
            let known: HashSet<_> = before.iter().map(|frame| frame.frame().as_ptr()).collect();
            if random(10) < if turn < 3_000 { 8 } else { 2 } {
                let name = "n".repeat(usize::try_from(random(300)).unwrap());
                pages.insert(&id, &name);
                list.insert(id, name);
            } else {
                pages.remove(&id);
                list.remove(&id);
            }
            let now = frames(&mut pages);
            assert!(now.difference(&known).count() <= 3, "a change makes few pages anew");
            most = most.max(now.len());
            if turn % 100 == 0 {
                assert_eq!(read(&mut pages), list);
            }
        }
        assert!(most > 10, "{most}");
        list.keys().for_each(|id| pages.remove(id));
        assert_eq!((read(&mut pages), pages.0.len()), (Plain::new(), 0));
    }

    #[test]
    fn all_who_ask_share_the_bytes() {
        let mut pages = Pages::default();
        (0..1_000).for_each(|number| pages.insert(&format!("host/{number}"), &"n".repeat(200)));
        let first = frames(&mut pages);
        assert!(first.len() > 10);
        assert_eq!(frames(&mut pages), first);
    }
}
