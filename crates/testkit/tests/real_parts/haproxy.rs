use portcullis_testkit::{HaProxy, Host, Target, can_connect, connect, link};

#[test]
fn a_connection_passes_through_it_to_the_member_that_is_left() {
    let [client, balancer, first, second] = ["client", "balancer", "first", "second"].map(Host::new);
    link(&client, &["192.0.2.10/24"], &balancer, &["192.0.2.1/24"]);
    link(&first, &["203.0.113.10/30"], &balancer, &["203.0.113.9/30"]);
    link(&second, &["203.0.113.14/30"], &balancer, &["203.0.113.13/30"]);
    let haproxy = HaProxy::start(
        &balancer,
        "defaults\n mode tcp\n timeout connect 2s\n timeout client 9s\n timeout server 9s\n\
         frontend api\n bind 192.0.2.1:6443\n default_backend members\n\
         backend members\n server first 203.0.113.10:6443\n server second 203.0.113.14:6443\n",
    );
    let serving = [first.serve(6443), second.serve(6443)];
    let seen: Vec<_> = (0..4).map(|_| connect(&client, "192.0.2.1", Target::Tcp(6443)).unwrap()).collect();
    assert!(
        seen.contains(&"203.0.113.9".into()) && seen.contains(&"203.0.113.13".into()),
        "both members answer: {seen:?}"
    );
    assert!(!can_connect(&client, "203.0.113.10", Target::Tcp(6443)), "there is no way around it");

    let answer = haproxy.ask("@1 show info");
    assert!(answer.contains("Name: HAProxy"), "{answer}");
    drop(serving);
}
