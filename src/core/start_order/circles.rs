//! The circles of an order, and a sequence in which every daemon comes after those that it starts after.
//!
//! Owns the one walk that finds both: Tarjan's strongly connected components, in a time that grows with the daemons and the
//! names that they give, whatever shape these have. Must not decide how a circle is resolved.

/// Nodes that reach each other, each group after the groups that it leads to. `edges`: to which nodes each leads.
pub(super) fn components(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut walk = Walk { edges, places: vec![None; edges.len()], stack: Vec::new(), found: Vec::new(), count: 0 };
    for node in 0..edges.len() {
        if walk.places[node].is_none() {
            walk.from(node);
        }
    }
    walk.found
}

/// What is known of a node that was reached.
#[derive(Clone, Copy)]
struct VisitedNode {
    /// How many were reached before it.
    number: usize,
    /// The lowest number of those that it reaches and that have no group yet.
    lowest: usize,
    has_group: bool,
}

struct Walk<'a> {
    edges: &'a [Vec<usize>],
    places: Vec<Option<VisitedNode>>,
    /// Those reached that have no group yet.
    stack: Vec<usize>,
    found: Vec<Vec<usize>>,
    count: usize,
}

impl Walk<'_> {
    /// Walks from `start` without recursion: a chain may be as long as there are daemons.
    fn from(&mut self, start: usize) {
        let mut path = vec![(start, 0)];
        self.reach(start);
        while let Some((node, next)) = path.last_mut() {
            let node = *node;
            match self.edges[node].get(*next) {
                Some(&to) => {
                    *next += 1;
                    match self.places[to] {
                        None => {
                            self.reach(to);
                            path.push((to, 0));
                        }
                        Some(place) if !place.has_group => self.lower(node, place.number),
                        Some(_) => {}
                    }
                }
                None => {
                    path.pop();
                    let Some(place) = self.places[node] else { continue };
                    if place.lowest == place.number {
                        self.close(node);
                    }
                    if let Some((before, _)) = path.last() {
                        self.lower(*before, place.lowest);
                    }
                }
            }
        }
    }

    fn reach(&mut self, node: usize) {
        self.places[node] = Some(VisitedNode { number: self.count, lowest: self.count, has_group: false });
        self.count += 1;
        self.stack.push(node);
    }

    fn lower(&mut self, node: usize, number: usize) {
        if let Some(place) = &mut self.places[node] {
            place.lowest = place.lowest.min(number);
        }
    }

    /// Those on the stack down to `node` are a group.
    fn close(&mut self, node: usize) {
        let begin = self.stack.iter().rposition(|other| *other == node).unwrap_or(0);
        let group = self.stack.split_off(begin);
        for other in &group {
            self.places[*other].iter_mut().for_each(|place| place.has_group = true);
        }
        self.found.push(group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(edges: &[&[usize]]) -> Vec<Vec<usize>> {
        let mut found = components(&edges.iter().map(|to| to.to_vec()).collect::<Vec<_>>());
        found.iter_mut().for_each(|group| group.sort_unstable());
        found
    }

    #[test]
    fn each_group_comes_after_those_that_it_leads_to() {
        assert_eq!(sorted(&[]), Vec::<Vec<usize>>::new());
        assert_eq!(sorted(&[&[1], &[2], &[]]), [vec![2], vec![1], vec![0]]);
        assert_eq!(sorted(&[&[0], &[0]]), [[0], [1]]);
        assert_eq!(sorted(&[&[1, 3], &[2], &[0], &[4], &[3]]), [vec![3, 4], vec![0, 1, 2]]);
        assert_eq!(sorted(&[&[1], &[0, 2], &[3], &[1]]), [[0, 1, 2, 3]]);
        // A node that has a group already makes no circle.
        assert_eq!(sorted(&[&[1, 2], &[], &[1]]), [[1], [2], [0]]);
    }
}
