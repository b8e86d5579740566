// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/pass_simulation.h"

#include <algorithm>

namespace accordion::plan {
namespace {

/// The clocks of the streams, as the actions move them.
class PassClock {
 public:
  PassClock(const StepSchedule& schedule, std::span<const UnitTimes> times,
            double collective_share)
      : times_(times),
        collective_share_(collective_share),
        gathered_(schedule.units.size(), 0.0),
        reduced_(schedule.units.size(), 0.0),
        gradient_slot_(schedule.units.size(), -1),
        slot_free_(schedule.gradient_slots.size(), 0.0) {}

  void apply(const Action& action);
  PassResult finish();

 private:
  struct Interval {
    double begin;
    double end;
  };

  const UnitTimes& times_of(const Action& action) const {
    return times_[static_cast<std::size_t>(action.unit)];
  }
  /// Collectives that take the whole device begin where the program is, one
  /// behind the other.
  bool one_at_a_time() const { return collective_share_ > 0.5; }
  void begin_compute(const Action& action, double ready, double seconds);
  void end_compute();
  double stretched(double begin, double seconds) const;
  void gather(const Action& action);
  void reduce(const Action& action, double seconds, double& links);
  void backward(const Action& action);

  std::span<const UnitTimes> times_;
  double collective_share_;
  std::vector<double> gathered_;    // by unit: when its parameters are there
  std::vector<double> reduced_;     // by unit: when its gradients are
  std::vector<int> gradient_slot_;  // by unit: where its gradients lie
  std::vector<double> slot_free_;   // by slot of gradients
  double compute_ = 0.0;
  double marker_ = 0.0;         // when the computation begun last began
  double links_ = 0.0;          // between the ranks of a copy
  double replicas_ = 0.0;       // between copies: other ranks, other links
  std::vector<Interval> busy_;  // when the links were, in order
  // Computation that has begun, and whose end waits for what the schedule
  // starts beside it.
  Action pending_ = {ActionKind::Forward, 0};
  double pending_seconds_ = 0.0;
  bool in_backward_ = false;
  PassResult result_;
};

void PassClock::begin_compute(const Action& action, double ready,
                              double seconds) {
  marker_ = std::max(compute_, ready);
  compute_ = marker_;
  pending_ = action;
  pending_seconds_ = seconds;
}

/// When work of `seconds` ends that shares the device with collectives.
double PassClock::stretched(double begin, double seconds) const {
  const double rate = 1.0 - collective_share_;
  double now = begin;
  double left = seconds;
  const auto first = std::partition_point(
      busy_.begin(), busy_.end(),
      [&](const Interval& interval) { return interval.end <= begin; });
  for (auto it = first; it != busy_.end() && left > 0.0; ++it) {
    const double alone = std::min(left, std::max(0.0, it->begin - now));
    now += alone;
    left -= alone;
    const double beside = std::min(
        left, rate * std::max(0.0, it->end - std::max(now, it->begin)));
    now += beside / rate;
    left -= beside;
  }
  return now + left;
}

void PassClock::end_compute() {
  if (pending_seconds_ <= 0.0) {
    return;
  }
  const double end = stretched(marker_, pending_seconds_);
  result_.contention += end - marker_ - pending_seconds_;
  (is_of_forward(pending_.kind) ? result_.forward : result_.backward) +=
      end - marker_;
  result_.events.push_back(
      {Stream::Compute, pending_.kind, pending_.unit, marker_, end});
  compute_ = end;
  pending_seconds_ = 0.0;
}

void PassClock::gather(const Action& action) {
  const UnitTimes& times = times_of(action);
  const double seconds = in_backward_ ? times.gather_backward : times.gather;
  const double begin = std::max(links_, marker_);
  gathered_[static_cast<std::size_t>(action.unit)] = begin + seconds;
  if (seconds <= 0.0) {
    return;
  }
  links_ = begin + seconds;
  busy_.push_back({begin, links_});
  result_.gather += seconds;
  ++result_.num_collectives;
  result_.events.push_back(
      {Stream::Gather, action.kind, action.unit, begin, links_});
}

void PassClock::reduce(const Action& action, double seconds, double& links) {
  double& reduced = reduced_[static_cast<std::size_t>(action.unit)];
  const bool now = action.kind == ActionKind::Reduce || one_at_a_time();
  const double ready = now ? compute_ : reduced;
  if (seconds <= 0.0) {
    reduced = std::max(ready, reduced);
    return;
  }
  const double begin = std::max(links, ready);
  links = begin + seconds;
  reduced = links;
  if (&links == &links_) {
    busy_.push_back({begin, links});
  }
  result_.reduce += seconds;
  ++result_.num_collectives;
  result_.events.push_back(
      {Stream::Reduce, action.kind, action.unit, begin, links});
}

void PassClock::backward(const Action& action) {
  const auto unit = static_cast<std::size_t>(action.unit);
  const double parameters = gathered_[unit];
  double slot = 0.0;
  if (action.slot >= 0) {
    gradient_slot_[unit] = action.slot;
    slot = slot_free_[static_cast<std::size_t>(action.slot)];
  }
  result_.exposed_gather += std::max(0.0, parameters - compute_);
  result_.exposed_reduce +=
      std::max(0.0, slot - std::max(compute_, parameters));
  begin_compute(action, std::max(parameters, slot), times_of(action).backward);
}

void PassClock::apply(const Action& action) {
  const auto unit = static_cast<std::size_t>(action.unit);
  if (is_marker(action.kind)) {
    end_compute();
  }
  switch (action.kind) {
    case ActionKind::Unshard:
      gather(action);
      return;
    case ActionKind::Forward:
      result_.exposed_gather += std::max(0.0, gathered_[unit] - compute_);
      begin_compute(action, gathered_[unit], times_of(action).forward);
      return;
    case ActionKind::ForwardEnd:
      begin_compute(action, compute_, times_of(action).forward_end);
      return;
    case ActionKind::Backward:
      in_backward_ = true;
      backward(action);
      return;
    case ActionKind::BackwardEnd:
      begin_compute(action, compute_, times_of(action).backward_end);
      end_compute();
      return;
    case ActionKind::Reduce:
      reduce(action, times_of(action).reduce, links_);
      return;
    case ActionKind::AllReduce:
      reduce(action, times_of(action).all_reduce,
             one_at_a_time() ? links_ : replicas_);
      return;
    case ActionKind::FinishReduce:
      if (gradient_slot_[unit] >= 0) {
        slot_free_[static_cast<std::size_t>(gradient_slot_[unit])] =
            reduced_[unit];
      }
      return;
    case ActionKind::Reshard:
    case ActionKind::FinishAllReduce:
    case ActionKind::Step:
    case ActionKind::Offload:
      return;
  }
}

PassResult PassClock::finish() {
  end_compute();
  result_.seconds = std::max({compute_, links_, replicas_});
  result_.exposed_reduce += result_.seconds - compute_;
  return std::move(result_);
}

}  // namespace

PassResult simulate_pass(const StepSchedule& schedule,
                         std::span<const UnitTimes> times,
                         double collective_share) {
  PassClock clock(schedule, times, collective_share);
  for (const Action& action : schedule.actions) {
    clock.apply(action);
  }
  return clock.finish();
}

}  // namespace accordion::plan
