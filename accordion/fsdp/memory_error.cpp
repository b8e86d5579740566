// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/memory_error.h"

#include <utility>

namespace accordion {
namespace {

std::string what_happened(const MemoryError::Facts& facts) {
  const std::string limit =
      facts.limit ? "the limit of " + describe_bytes(*facts.limit) + " a rank"
                  : "no limit";
  if (!facts.failure.empty()) {
    return "memory ran out (" + limit + " is set): " +
           (facts.requested > 0 ? describe_bytes(facts.requested) : "more") +
           " could not be allocated";
  }
  if (facts.requested == 0) {
    return limit + " is exceeded by what is held";
  }
  return limit + " is exceeded by " + describe_bytes(facts.requested) + " more";
}

std::string message(const MemoryError::Facts& facts,
                    const std::string& advice) {
  std::string text = "[memory] " + what_happened(facts) + ", in " +
                     facts.place + ". Held: " + describe(facts.held) + ", " +
                     describe_bytes(facts.held.total()) + " together.";
  if (!facts.failure.empty()) {
    text += " The allocator: " + facts.failure + '.';
  }
  return advice.empty() ? text : text + ' ' + advice;
}

}  // namespace

MemoryError::MemoryError(Facts facts, const std::string& advice)
    : std::runtime_error(message(facts, advice)), facts_(std::move(facts)) {}

}  // namespace accordion
