//! What the API server shows, for an observation.
//!
//! Owns which view counts while the cluster behind a new connection has yet to identify itself. Must not ask it.

use std::sync::Arc;

use crate::node::api::Api;
use crate::node::api::Link;
use crate::node::api::Snapshot;

use super::super::observation::ObservedApi;
use super::super::requests::Reply;
use super::super::state::AgentState;

#[derive(Default)]
pub(super) struct ApiView {
    /// The last view from a connection whose cluster had identified itself.
    identified: Option<Arc<Snapshot>>,
}

impl ApiView {
    /// What the API server shows. Until the cluster behind a new connection has identified itself, that is the view from
    /// before.
    pub(super) fn read(&mut self, api: Option<&Api>, state: &AgentState, replies: &[Reply]) -> ObservedApi {
        let Some(api) = api else {
            return ObservedApi {
                snapshot: Arc::default(),
                link: Link::Connecting,
                endpoint: None,
                connections_opened: 0,
                sightings: Vec::new(),
                is_former: false,
                has_news: false,
            };
        };
        let guard = &state.concerns.removal_guard;
        // Before the number: nothing in them is of a connection that is opened now.
        let (snapshot, endpoint) = (api.store().snapshot(), api.endpoint());
        let opened = api.connector().counters().connections_opened;
        let known = state.inputs.cluster_uid.as_ref();
        let is_identified = guard.is_identified(known, opened, replies);
        let has_news =
            self.identified.as_ref().map_or(snapshot.content > 0, |former| former.content != snapshot.content);
        if guard.has_foreign_view() {
            self.identified = None;
        } else if opened == 0 || guard.is_identified(known, opened, &[]) {
            // Not right at the identification: the earlier snapshot may be another cluster's.
            self.identified = Some(Arc::clone(&snapshot));
        }
        let former = self.identified.clone().filter(|former| !is_identified && former.content > 0);
        let is_former = former.is_some();
        ObservedApi {
            // They stay until it is known to which cluster they belong.
            sightings: if is_identified { api.store().take_sightings() } else { Vec::new() },
            snapshot: former.unwrap_or(snapshot),
            link: api.connector().link().borrow().clone(),
            endpoint,
            connections_opened: opened,
            is_former,
            has_news,
        }
    }
}
