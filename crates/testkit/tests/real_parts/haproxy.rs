use portcullis_testkit::{HaProxy, Host, Target, can_connect, connect, eventually, link};

const CONFIGURATION: &str = "
defaults
  mode tcp
  retries 2
  option redispatch 1
  timeout connect 1s
  timeout client 9s
  timeout server 9s
frontend api
  bind 192.0.2.1:6443
  default_backend members
backend members
  server first 203.0.113.10:6443
  server second 203.0.113.14:6443
";

#[test]
fn connections_pass_through_it_and_to_the_member_that_is_left() {
    let [client, balancer, first, second] = ["client", "balancer", "first", "second"].map(Host::new);
    link(&client, &["192.0.2.10/24"], &balancer, &["192.0.2.1/24"]);
    link(&first, &["203.0.113.10/30"], &balancer, &["203.0.113.9/30"]);
    link(&second, &["203.0.113.14/30"], &balancer, &["203.0.113.13/30"]);
    client.default_route("192.0.2.1");
    first.default_route("203.0.113.9");
    let haproxy = HaProxy::start(&balancer, CONFIGURATION);
    let first_serves = first.serve(6443);
    let _second_serves = second.serve(6443);

    let through_it = || connect(&client, "192.0.2.1", Target::Tcp(6443));
    let (by_first, by_second) = (Ok("203.0.113.9".to_owned()), Ok("203.0.113.13".to_owned()));
    eventually("the first member answers, and sees the balancer", || through_it() == by_first);
    eventually("the second member answers too", || through_it() == by_second);
    assert!(!can_connect(&client, "203.0.113.10", Target::Tcp(6443)), "it forwards nothing by itself");

    drop(first_serves);
    for _ in 0..4 {
        assert_eq!(through_it(), by_second, "the first is gone");
    }
    let answer = haproxy.ask("@1 show info");
    assert!(answer.contains("Name: HAProxy"), "{answer}");
}
