#!/usr/bin/env bash
# Plays two hosts of two ranks each: network namespaces joined by a cable.
#
#   two_hosts.sh PROGRAM collectives   the ranks check their collectives
#   two_hosts.sh PROGRAM until_cut     one host is unplugged meanwhile
#
# Exits with 77, which ctest reports as skipped, where it is not root.
set -euo pipefail
program="$1" body="$2"

if [ "$(id -u)" -ne 0 ]; then
  echo "skipped: only root can make network namespaces"
  exit 77
fi
for tool in ip nsenter; do
  command -v "$tool" > /dev/null || {
    echo "'$tool' is missing: run scripts/deps.sh tests"
    exit 1
  }
done

folder="$(mktemp -d)"
hosts=("accordion-a-$$" "accordion-b-$$")
ranks=()

clean() {
  [ ${#ranks[@]} -eq 0 ] || kill -KILL "${ranks[@]}" 2> /dev/null || true
  wait
  # Takes the cable with it.
  for host in "${hosts[@]}"; do
    ip netns del "$host" 2> /dev/null || true
  done
  rm -rf "$folder"
}
trap clean EXIT

fail() {
  echo "FAILED: $*"
  tail -n +1 "$folder"/rank-* 2> /dev/null || true
  exit 1
}

make_hosts() {
  for host in "${hosts[@]}"; do
    ip netns add "$host" || fail "cannot make a network namespace, which needs" \
      "the capabilities CAP_SYS_ADMIN and CAP_NET_ADMIN"
    ip -n "$host" link set lo up
  done
  ip link add accordion0 netns "${hosts[0]}" type veth \
    peer name accordion0 netns "${hosts[1]}" ||
    fail "cannot join network namespaces by a veth pair"
  for index in 0 1; do
    ip -n "${hosts[index]}" address add "10.77.0.$((index + 1))/24" \
      dev accordion0
    ip -n "${hosts[index]}" link set accordion0 up
  done
}

start_ranks() {
  for rank in 0 1 2 3; do
    RANK=$rank WORLD_SIZE=4 LOCAL_RANK=$((rank % 2)) LOCAL_WORLD_SIZE=2 \
      MASTER_ADDR=10.77.0.1 MASTER_PORT=29577 TORCHELASTIC_RUN_ID="two-hosts" \
      nsenter --net="/run/netns/${hosts[rank / 2]}" \
      "$program" --run-as-rank "$body" two-hosts \
      > "$folder/rank-$rank" 2>&1 &
    ranks+=($!)
  done
}

# Waits until every rank printed a line that matches.
await() {
  local deadline=$((SECONDS + 60))
  while [ "$(grep -l "$1" "$folder"/rank-* | wc -l)" -lt 4 ]; do
    [ $SECONDS -lt $deadline ] || fail "not every rank printed '$1' within 60 s"
    kill -0 "${ranks[@]}" 2> /dev/null || fail "a rank ended early"
    sleep 0.05
  done
}

expect_success() {
  for rank in 0 1 2 3; do
    wait "${ranks[rank]}" || fail "rank $rank exited with $?"
  done
}

# expect_line RANK PATTERN
expect_line() {
  grep -Eq "$2" "$folder/rank-$1" || fail "rank $1 does not say '$2'"
}

make_hosts
start_ranks
if [ "$body" = until_cut ]; then
  await "is under way"
  ip -n "${hosts[1]}" link set accordion0 down
fi
expect_success
if [ "$body" = until_cut ]; then
  # A rank that its neighbour tells first repeats what that one met.
  for rank in 0 1; do
    expect_line $rank "after [0-9]+ ms: .*all_reduce 'layers.3' \(call [0-9]+ of \
its kind\) on rank $rank of 4 failed: .*waiting for rank [23] \(timeout 3000 ms"
  done
fi
grep -h "after .* ms:" "$folder"/rank-* || true
echo "passed"
