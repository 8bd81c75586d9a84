use super::*;

fn limits(connections_max: usize, per_client_max: usize, handshakes_max: usize) -> Connections {
    Connections::new(ConnectionLimits {
        connections_max,
        per_client_max,
        handshakes_max,
    })
}

fn from(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

fn is_asked(admitted: &ConnectionSlot) -> bool {
    let register = admitted.connections.register();
    register.open[&admitted.id].leaving
}

#[test]
fn the_client_with_the_most_idle_connections_loses_the_oldest() {
    let connections = limits(5, 5, 5);
    let modest: Vec<_> = (0..2).flat_map(|_| connections.admit(from(1))).collect();
    let greedy: Vec<_> = (0..3).flat_map(|_| connections.admit(from(2))).collect();
    let newcomer = connections.admit(from(3)).expect("room is made");
    assert_eq!(
        greedy.iter().map(is_asked).collect::<Vec<_>>(),
        [true, false, false]
    );
    assert!(!modest.iter().any(is_asked) && !is_asked(&newcomer));
}

#[test]
fn a_connection_at_work_is_never_asked_to_go() {
    let connections = limits(2, 2, 2);
    let first = connections.admit(from(1)).expect("room");
    let second = connections.admit(from(1)).expect("room");
    assert!(first.works() && second.works());
    assert_eq!(
        connections.admit(from(2)).err(),
        Some(ConnectionRefusal::Full(2))
    );
    second.waits();
    let _newcomer = connections.admit(from(2)).expect("room is made");
    assert!(is_asked(&second) && !is_asked(&first));
}

#[test]
fn a_client_over_its_share_replaces_its_own_connections_only() {
    let connections = limits(10, 2, 10);
    let other = connections.admit(from(9)).expect("room");
    let first = connections.admit(from(1)).expect("room");
    let second = connections.admit(from(1)).expect("room");
    let third = connections.admit(from(1)).expect("its own makes room");
    assert!(is_asked(&first) && !is_asked(&second) && !is_asked(&other));
    assert!(second.works() && third.works());
    drop(first);
    assert_eq!(
        connections.admit(from(1)).err(),
        Some(ConnectionRefusal::ClientFull(2))
    );
    assert!(connections.admit(from(2)).is_ok());
}

#[test]
fn too_many_handshakes_cost_the_one_who_makes_them() {
    let connections = limits(100, 100, 2);
    let honest = connections.admit(from(1)).expect("room");
    honest.handshake_started();
    let slow: Vec<_> = (0..3).flat_map(|_| connections.admit(from(2))).collect();
    slow.iter().for_each(ConnectionSlot::handshake_started);
    assert_eq!(
        slow.iter().map(is_asked).collect::<Vec<_>>(),
        [true, true, false]
    );
    assert!(!is_asked(&honest));
    honest.handshake_ended();
    assert_eq!(connections.register().shaking.len(), 1);
}

#[test]
fn a_request_that_comes_while_its_connection_is_asked_to_go_is_served_if_there_is_room() {
    let connections = limits(1, 1, 1);
    let first = connections.admit(from(1)).expect("room");
    let newcomer = connections.admit(from(2)).expect("room is made");
    assert!(is_asked(&first) && !first.works(), "the place is taken");
    drop(newcomer);
    assert!(first.works() && !is_asked(&first));
    assert_eq!(connections.register().leaving, 0);
}

#[test]
fn requests_that_come_late_do_not_take_what_is_kept_for_others() {
    let connections = limits(400, 400, 400);
    // Each newcomer asks the one before it to go, whose request is on its way by then.
    let mut held: Vec<ConnectionSlot> = Vec::new();
    for _ in 0..600 {
        let newcomer = connections.admit(from(1));
        if let Some(last) = held.last() {
            last.works();
        }
        held.extend(newcomer);
    }
    let at_work = held.iter().filter(|admitted| admitted.works()).count();
    assert!(at_work <= 300, "{at_work} of 400 of one client");
    assert!(connections.admit(from(2)).is_ok());
}

#[test]
fn nothing_is_left_of_those_who_went() {
    let connections = limits(8, 3, 2);
    for round in 0..100u8 {
        let some: Vec<_> = (0..6)
            .flat_map(|n| connections.admit(from(n % 4)))
            .collect();
        for (index, admitted) in some.iter().enumerate() {
            match (index + usize::from(round)) % 4 {
                0 => drop(admitted.works()),
                1 => admitted.handshake_started(),
                2 => admitted.handshake_ended(),
                _ => admitted.waits(),
            }
        }
    }
    let register = connections.register();
    assert!(register.open.is_empty() && register.counts.is_empty());
    assert_eq!((register.waiting.len(), register.shaking.len()), (0, 0));
    assert_eq!(register.leaving, 0);
    assert_eq!(register.waiting.first_of_most(), None);
}

#[test]
fn an_ipv6_network_is_one_client_and_a_mapped_address_the_old_one() {
    let parse = |text: &str| text.parse::<IpAddr>().expect("an address");
    assert_eq!(
        client_of(parse("2001:db8::1")),
        client_of(parse("2001:db8::ffff:1"))
    );
    assert_ne!(
        client_of(parse("2001:db8::1")),
        client_of(parse("2001:db8:0:1::1"))
    );
    assert_eq!(client_of(parse("::ffff:192.0.2.1")), from(1));
}

#[test]
fn a_client_is_told_about_once_in_an_interval_and_what_was_passed_over_is_counted() {
    let mut told = Told::<IpAddr>::default();
    let (start, minute) = (Instant::now(), Duration::from_secs(60));
    let tells = |told: &mut Told<IpAddr>, last, seconds| {
        told.tells(from(last), start + Duration::from_secs(seconds), minute)
    };
    assert_eq!(tells(&mut told, 1, 0), Some(0));
    assert_eq!(tells(&mut told, 1, 1), None);
    assert_eq!(tells(&mut told, 1, 59), None);
    assert_eq!(tells(&mut told, 2, 59), Some(0));
    assert_eq!(tells(&mut told, 1, 60), Some(2));
}

#[tokio::test]
async fn the_one_asked_to_go_hears_of_it_whenever_it_listens() {
    let connections = limits(1, 2, 1);
    let first = connections.admit(from(1)).expect("room");
    let _second = connections.admit(from(1)).expect("room is made");
    tokio::time::timeout(Duration::from_secs(5), first.asked_to_go())
        .await
        .expect("it was asked before it listened");
}

#[test]
fn of_those_that_were_asked_to_go_few_may_linger() {
    let connections = limits(1, LEAVING_MAX, 1);
    let mut newcomers = (0..=LINGERING_MAX + 1).map(|_| connections.admit(from(1)).expect("room"));
    let first = newcomers.next().expect("one");
    let others: Vec<_> = newcomers.by_ref().take(LINGERING_MAX).collect();
    assert!(is_asked(&first) && first.may_linger());
    let _last = newcomers.next().expect("one more");
    assert!(!first.may_linger() && others.iter().all(|other| !other.may_linger()));
    drop(others);
    assert!(first.may_linger());
}
