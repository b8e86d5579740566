// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stdexcept>
#include <string>

#include <gmock/gmock.h>

namespace accordion::plan::testing {

/// `call` throws std::invalid_argument whose message has all of `parts`.
template <typename Call>
void expect_message(const Call& call,
                    std::initializer_list<const char*> parts) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    for (const char* const part : parts) {
      EXPECT_THAT(std::string(error.what()), ::testing::HasSubstr(part));
    }
    return;
  }
  ADD_FAILURE() << "nothing was thrown; expected '" << *parts.begin() << "'";
}

}  // namespace accordion::plan::testing
