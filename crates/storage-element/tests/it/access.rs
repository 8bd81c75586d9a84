//! Who may do what: tokens, scopes, and what nobody is asked for.

use crate::site::{Site, path};
use penstock_decide::authorization::GroupRule;
use penstock_model::{Right, Timestamp, VoName};
use penstock_persistence::namespace::Change;
use penstock_protocol::token::IssuerVos;

async fn check(site: &Site, scope: &str, method: &str, path: &str, expected: u16) {
    let token = site.token(scope);
    let extra: &[(&str, &str)] = match method {
        "MOVE" => &[("destination", "/foo/bar/moved")],
        "PROPFIND" => &[("depth", "1")],
        _ => &[],
    };
    let response = site.send_as(&token, method, path, extra, b"").await;
    assert_eq!(
        response.status,
        expected,
        "{scope}: {method} {path}: {}",
        response.text()
    );
    if expected == 403 {
        assert!(
            response.text().starts_with("not allowed on /"),
            "{}",
            response.text()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scope_ends_at_a_whole_name() {
    let site = Site::new().await;
    site.put("/foo/bar/f", b"x").await;
    site.put("/foo/bargain", b"x").await;
    let read = "storage.read:/foo/bar";
    check(&site, read, "GET", "/foo/bar/f", 200).await;
    check(&site, read, "GET", "/foo/bargain", 403).await;
    check(&site, read, "GET", "/foo/bar/missing", 404).await;
    check(&site, read, "GET", "/foo/missing", 403).await;
    check(&site, read, "GET", "/foo/bar/..%2fbargain", 400).await;
    check(&site, read, "PUT", "/foo/bar/new", 403).await;
    check(&site, read, "DELETE", "/foo/bar/f", 403).await;
    check(&site, read, "PROPFIND", "/foo/bar", 207).await;
    // Clients resolve '..' before they send; whoever does not is refused.
    for escape in ["/foo/bar/../bargain", "/foo/bar/%2e%2e/bargain"] {
        let token = site.token(read);
        let head = format!("GET {escape} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n");
        let answer = site.raw(&(head + "Connection: close\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{escape}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn create_makes_new_files_and_their_parents_and_touches_nothing_else() {
    let site = Site::new().await;
    site.put("/foo/bar/old", b"x").await;
    let create = "storage.create:/foo/bar";
    check(&site, create, "PUT", "/foo/bar/new", 201).await;
    check(&site, create, "PUT", "/foo/bar/deep/er/new", 201).await;
    check(&site, create, "PUT", "/foo/bar/old", 403).await;
    check(&site, create, "DELETE", "/foo/bar/old", 403).await;
    check(&site, create, "GET", "/foo/bar/old", 403).await;
    check(&site, create, "HEAD", "/foo/bar/old", 200).await;
    check(&site, create, "MKCOL", "/foo/bar/d", 201).await;
    check(&site, create, "MKCOL", "/foo", 405).await;
    check(&site, create, "MOVE", "/foo/bar/new", 201).await;
    check(&site, create, "MOVE", "/foo/bar/old", 403).await;
    check(&site, "storage.modify:/foo/bar", "PUT", "/foo/bar/old", 204).await;
    check(&site, "storage.modify:/foo/bar", "GET", "/foo/bar/old", 403).await;
    check(
        &site,
        "storage.modify:/foo/bar",
        "DELETE",
        "/foo/bar/old",
        204,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_token_is_401_with_a_challenge() {
    let site = Site::new().await;
    site.put("/f", b"x").await;
    let cases = [
        ("expired", site.token_with(|claims| claims.exp -= 1200)),
        (
            "wrong audience",
            site.token_with(|claims| claims.aud = vec!["https://other".to_owned()]),
        ),
        (
            "wrong issuer",
            site.token_with(|claims| claims.iss = "https://evil.example.org".to_owned()),
        ),
        (
            "unknown version",
            site.token_with(|claims| claims.wlcg_ver = "2.0".to_owned()),
        ),
        ("no storage path", site.token("storage.read")),
        ("not a token", "nonsense".to_owned()),
        ("foreign key", Site::new().await.token("storage.read:/")),
    ];
    for (what, token) in cases {
        let response = site.send_as(&token, "GET", "/f", &[], b"").await;
        let challenge = response.header("www-authenticate");
        assert_eq!(response.status, 401, "{what}");
        assert!(
            challenge.starts_with("Bearer error=\"invalid_token\", error_description=\""),
            "{what}: {challenge}"
        );
        assert!(!challenge.contains(&token), "{what} shows the token");
        assert!(!response.text().contains(&token), "{what} shows the token");
    }
    let nobody = site.send_bare("GET", "/f", &[], b"").await;
    assert_eq!(
        (nobody.status, nobody.header("www-authenticate")),
        (401, "Bearer")
    );
    let anywhere =
        site.token_with(|claims| claims.aud = vec!["https://wlcg.cern.ch/jwt/v1/any".to_owned()]);
    assert_eq!(
        site.send_as(&anywhere, "GET", "/f", &[], b"").await.status,
        200
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn anybody_may_read_what_is_public_and_nothing_else() {
    let site = Site::new().await;
    site.put("/public/f", b"open").await;
    site.put("/publication", b"closed").await;
    let bare = async |method: &str, path: &str| {
        site.send_bare(method, path, &[("depth", "1")], b"")
            .await
            .status
    };
    assert_eq!(bare("GET", "/public/f").await, 200);
    assert_eq!(bare("PROPFIND", "/public").await, 207);
    assert_eq!(bare("GET", "/public/").await, 200);
    assert_eq!(bare("GET", "/public/missing").await, 404);
    assert_eq!(bare("PUT", "/public/g").await, 401);
    assert_eq!(bare("DELETE", "/public/f").await, 401);
    assert_eq!(bare("GET", "/publication").await, 401);
    assert_eq!(bare("GET", "/").await, 401);
    check(&site, "storage.read:/elsewhere", "GET", "/public/f", 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_in_the_query_counts() {
    let site = Site::new().await;
    site.put("/f", b"x").await;
    let token = site.token("storage.read:/");
    let response = site
        .send_bare("GET", &format!("/f?authz=Bearer%20{token}"), &[], b"")
        .await;
    assert_eq!(response.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_count_only_without_capabilities() {
    let site = Site::with(|config| {
        config.access.group_rules = vec![GroupRule {
            group: "/atlas".to_owned(),
            path: path("/atlas"),
            rights: vec![Right::Read, Right::Modify],
        }];
    })
    .await;
    let member = |scope: &str| {
        site.token_with(|claims| {
            claims.scope = scope.to_owned();
            claims.wlcg_groups = vec!["/atlas".to_owned()];
        })
    };
    let put =
        async |token: String, path: &str| site.send_as(&token, "PUT", path, &[], b"x").await.status;
    assert_eq!(put(member(""), "/atlas/f").await, 201);
    assert_eq!(put(member(""), "/cms/f").await, 403);
    assert_eq!(put(member("storage.read:/"), "/atlas/g").await, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_counts_only_where_its_issuer_may_speak_for_the_vo() {
    let vos = |names: &[&str]| IssuerVos::Listed(names.iter().copied().map(VoName::new).collect());
    for (told, vos, expected) in [
        ("that VO", IssuerVos::One(VoName::new("cms")), 201),
        ("that VO among others", vos(&["atlas", "cms"]), 201),
        ("another VO", IssuerVos::One(VoName::new("atlas")), 403),
        (
            "a VO of a similar name",
            IssuerVos::One(VoName::new("cm")),
            403,
        ),
        ("other VOs", vos(&["atlas"]), 403),
        ("none", vos(&[]), 403),
        ("nothing", IssuerVos::Unlisted, 403),
    ] {
        let site = Site::with(|config| {
            config.issuer.as_mut().expect("an issuer").trust.vos = vos;
            config.access.group_rules = vec![GroupRule {
                group: "/cms/prod".to_owned(),
                path: path("/cms"),
                rights: vec![Right::Modify],
            }];
        })
        .await;
        let token = site.token_with(|claims| {
            claims.scope = String::new();
            claims.wlcg_groups = vec!["/cms/prod".to_owned()];
        });
        let answer = site.send_as(&token, "PUT", "/cms/f", &[], b"x").await;
        assert_eq!(answer.status, expected, "{told}: {}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rights_of_an_issuer_bound_what_groups_of_its_tokens_may_do() {
    for (rights, put, replace, get, delete) in [
        (Right::ALL.to_vec(), 201, 204, 200, 204),
        (vec![Right::Read, Right::Create], 201, 403, 200, 403),
        (vec![Right::Modify], 201, 204, 403, 204),
        (vec![Right::Read], 403, 403, 200, 403),
        (vec![Right::Poll], 403, 403, 403, 403),
    ] {
        let site = Site::new().await;
        site.put("/data/f", b"x").await;
        let site = site
            .reopen(|config| {
                let trust = &mut config.issuer.as_mut().expect("an issuer").trust;
                trust.vos = IssuerVos::One(VoName::new("dteam"));
                trust.rights.clone_from(&rights);
                config.access.group_rules = vec![GroupRule {
                    group: "/dteam".to_owned(),
                    path: path("/data"),
                    rights: vec![Right::Read, Right::Create, Right::Modify],
                }];
            })
            .await;
        let token = site.token_with(|claims| {
            claims.scope = "openid".to_owned();
            claims.wlcg_groups = vec!["/dteam".to_owned()];
        });
        let ask = async |method: &str, path: &str| {
            let answer = site.send_as(&token, method, path, &[], b"x").await;
            (answer.status, answer.text())
        };
        for (method, path, expected) in [
            ("PUT", "/data/new", put),
            ("GET", "/data/f", get),
            ("PUT", "/data/f", replace),
            ("DELETE", "/data/f", delete),
        ] {
            let (status, text) = ask(method, path).await;
            assert_eq!(status, expected, "{rights:?}: {method} {path}: {text}");
        }
    }
}

#[tokio::test]
async fn a_creator_renames_own_files_and_no_others() {
    let site = Site::new().await;
    let as_user = |name: &'static str, scope: &str| {
        let scope = scope.to_owned();
        site.token_with(|claims| {
            claims.sub = name.to_owned();
            claims.scope = scope;
        })
    };
    let (bob, alice) = (
        as_user("bob", "storage.create:/drop"),
        as_user("alice", "storage.modify:/drop"),
    );
    site.send_as(&alice, "PUT", "/drop/alices", &[], b"a").await;
    site.send_as(&bob, "PUT", "/drop/bobs.part", &[], b"b")
        .await;
    let rename = async |token: &str, from: &str, to: &str| {
        let headers = [("destination", to)];
        site.send_as(token, "MOVE", from, &headers, b"")
            .await
            .status
    };
    assert_eq!(rename(&bob, "/drop/alices", "/drop/gone").await, 403);
    assert_eq!(rename(&bob, "/drop/bobs.part", "/drop/alices").await, 403);
    assert_eq!(rename(&bob, "/drop/bobs.part", "/drop/bobs").await, 201);
    assert_eq!(rename(&alice, "/drop/bobs", "/drop/moved").await, 201);
    assert_eq!(site.get("/drop/alices").await.text(), "a");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_creator_moves_no_file_that_took_the_place_of_the_own_one_meanwhile() {
    let site = Site::new().await;
    let bob = site.token_with(|claims| {
        claims.sub = "bob".to_owned();
        claims.scope = "storage.create:/drop".to_owned();
    });
    // In some rounds the other file comes after the look and before the change.
    for _ in 0..60 {
        site.put("/drop/alices", b"alice's").await;
        let own = site.send_as(&bob, "PUT", "/drop/own", &[], b"own").await;
        assert_eq!(own.status, 201, "{}", own.text());
        let slipping = site.slip_in_meanwhile("/drop/alices", "/drop/own");
        let headers = [("destination", "/drop/taken")];
        let moved = site.send_as(&bob, "MOVE", "/drop/own", &headers, b"").await;
        slipping.await.expect("renamed");
        match moved.status {
            201 => assert_eq!(site.get("/drop/taken").await.text(), "own"),
            status => assert!([403, 412].contains(&status), "{}", moved.text()),
        }
        assert_eq!(site.status("DELETE", "/drop").await, 204);
    }
}

#[tokio::test]
async fn names_of_the_door_cannot_be_made() {
    let site = Site::new().await;
    site.put("/f", b"x").await;
    for name in [
        "/health",
        "/metrics/x",
        "/.well-known/wlcg-tape-rest-api",
        "/jwks",
        "/.oauth2/token",
    ] {
        for (method, path, headers) in [
            ("PUT", name, vec![]),
            ("MKCOL", name, vec![]),
            ("MOVE", "/f", vec![("destination", name)]),
            ("COPY", "/f", vec![("destination", name)]),
        ] {
            let refused = site.send(method, path, &headers, b"").await;
            assert_eq!(refused.status, 403, "{method} {path} {headers:?}");
            assert!(refused.text().contains("belongs to the door"));
        }
    }
    assert_eq!(site.status("HEAD", "/.well-known/other").await, 404);
}

#[tokio::test]
async fn what_stood_under_a_name_of_the_door_is_not_served_and_can_be_moved_away() {
    let site = Site::new().await;
    for name in ["/.well-known", "/health"] {
        let made = Change::MakeDirectory {
            path: path(name),
            owner: None,
            at: Timestamp(0),
        };
        site.storage.namespace().apply(made).expect("made");
        let depth = [("depth", "1")];
        let listed = site.send("PROPFIND", name, &depth, b"").await;
        assert_eq!(listed.status, 207, "{name}: {}", listed.text());
        assert_eq!(site.status("MKCOL", &format!("{name}/d")).await, 403);
    }
    assert_eq!(site.status("GET", "/.well-known").await, 404);
    assert_eq!(site.status("GET", "/health").await, 200);
    let to = [("destination", "/moved")];
    let moved = site.send("MOVE", "/.well-known", &to, b"").await;
    assert_eq!(moved.status, 201, "{}", moved.text());
    assert_eq!(site.status("DELETE", "/health").await, 204);
}
