//! Room for open transfers: a bound for all together, and where that gets scarce, smaller ones for each VO and each user,
//! so that nobody takes all of it.

use penstock_model::{UserName, VoName};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// A share of the room that a job would pass. Transfers that wait for another replica or hop count, as each takes memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FullShare {
    pub of: ShareHolder,
    /// Open transfers of these.
    pub open: usize,
    /// So many they may have while room is scarce.
    pub open_max: usize,
}

/// Who has a share of the room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShareHolder {
    /// All users of a VO together.
    Vo(VoName),
    User(UserName),
}

/// How many transfers are open, by VO and user.
#[derive(Debug, Default, PartialEq)]
pub(super) struct OpenCounts(HashMap<VoName, OpenOfVo>);

#[derive(Debug, Default, PartialEq)]
struct OpenOfVo {
    all: usize,
    by_user: HashMap<UserName, usize>,
}

impl OpenCounts {
    pub(super) fn add(&mut self, vo: &VoName, user: &UserName) {
        if !self.0.contains_key(vo) {
            self.0.insert(vo.clone(), OpenOfVo::default());
        }
        let of_vo = self.0.get_mut(vo).expect("just inserted");
        of_vo.all += 1;
        match of_vo.by_user.get_mut(user) {
            Some(open) => *open += 1,
            None => drop(of_vo.by_user.insert(user.clone(), 1)),
        }
    }

    pub(super) fn remove(&mut self, vo: &VoName, user: &UserName) {
        let of_vo = self.0.get_mut(vo).expect("its transfer was added");
        of_vo.all -= 1;
        let of_user = of_vo.by_user.get_mut(user);
        let of_user = of_user.expect("its transfer was added");
        *of_user -= 1;
        if *of_user == 0 {
            of_vo.by_user.remove(user);
        }
        if of_vo.all == 0 {
            self.0.remove(vo);
        }
    }

    /// The share that a job of so many transfers would pass, when `open` are open and `open_max` may be. A service of one
    /// user fills three quarters; the last quarter is for users with at most a quarter, of VOs with at most half.
    pub(super) fn full_share(
        &self,
        vo: &VoName,
        user: &UserName,
        transfers: usize,
        open: usize,
        open_max: usize,
    ) -> Option<FullShare> {
        if open.saturating_add(transfers) <= open_max - open_max / 4 {
            return None;
        }
        let of_vo = self.0.get(vo);
        let open_of_vo = of_vo.map_or(0, |of_vo| of_vo.all);
        let open_of_user = of_vo.and_then(|of_vo| of_vo.by_user.get(user));
        let share = |of, open: usize, open_max| {
            let is_full = open.saturating_add(transfers) > open_max;
            is_full.then_some(FullShare { of, open, open_max })
        };
        share(
            ShareHolder::User(user.clone()),
            open_of_user.copied().unwrap_or(0),
            open_max / 4,
        )
        .or_else(|| share(ShareHolder::Vo(vo.clone()), open_of_vo, open_max / 2))
    }
}
