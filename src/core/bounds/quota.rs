//! How much memory there is for what namespaces that are not trusted have, and how much of it is taken.
//!
//! Owns how much each namespace gets. Must not know what is stored.

use std::collections::BTreeMap;

/// How many bytes may be kept in all.
#[derive(Clone, Copy, Debug)]
pub struct Quota {
    /// Of one namespace.
    pub each: usize,
    /// Of all together.
    pub all: usize,
    /// How much each of them may have, however much the others have.
    pub share: usize,
}

/// How much of a [`Quota`] is taken.
#[derive(Clone, Debug, Default)]
pub struct QuotaUse {
    by_namespace: BTreeMap<String, usize>,
    all: usize,
}

impl QuotaUse {
    /// Something of `namespace` takes so many bytes.
    pub fn add(&mut self, namespace: &str, bytes: usize) {
        if bytes == 0 {
            return;
        }
        match self.by_namespace.get_mut(namespace) {
            Some(taken) => *taken += bytes,
            None => drop(self.by_namespace.insert(namespace.to_owned(), bytes)),
        }
        self.all += bytes;
    }

    /// It takes them no more.
    pub fn give_back(&mut self, namespace: &str, bytes: usize) {
        if let Some(taken) = self.by_namespace.get_mut(namespace) {
            *taken -= bytes;
            self.all -= bytes;
            if *taken == 0 {
                self.by_namespace.remove(namespace);
            }
        }
    }

    /// How much more of `quota` may be kept of `namespace`.
    pub fn left(&self, quota: Quota, namespace: &str) -> usize {
        self.left_beside(0, quota, namespace)
    }

    /// The same if `own` of what `namespace` takes did not count.
    pub fn left_beside(&self, own: usize, quota: Quota, namespace: &str) -> usize {
        let taken = self.by_namespace.get(namespace).map_or(0, |taken| taken.saturating_sub(own));
        let all = self.all.saturating_sub(own);
        let left_to_all = quota.all.saturating_sub(all).max(quota.share.saturating_sub(taken));
        quota.each.saturating_sub(taken).min(left_to_all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_namespace_has_its_bound_and_a_share_that_the_others_do_not_take() {
        let quota = Quota { each: 10, all: 16, share: 2 };
        let mut taken = QuotaUse::default();
        assert_eq!(taken.left(quota, "a"), 10);
        taken.add("a", 9);
        taken.add("b", 7);
        assert_eq!(["a", "b", "c"].map(|namespace| taken.left(quota, namespace)), [0, 0, 2]);
        taken.add("c", 1);
        assert_eq!(taken.left(quota, "c"), 1, "beyond what all have together");
        taken.give_back("a", 9);
        taken.give_back("never", 5);
        assert_eq!(["a", "b", "c"].map(|namespace| taken.left(quota, namespace)), [8, 3, 8]);
    }
}
