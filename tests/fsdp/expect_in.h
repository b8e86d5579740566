// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include <gtest/gtest.h>

namespace accordion::testing {

/// Expects that `text` contains `phrase`, and shows all of it where it does not.
inline void expect_in(const std::string& text, const std::string& phrase) {
  EXPECT_NE(text.find(phrase), std::string::npos)
      << "no '" << phrase << "' in\n"
      << text;
}

}  // namespace accordion::testing
