// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace accordion::plan {

/// How text is written.
struct TextStyle {
  bool colour = false;  ///< ANSI colours: for terminals alone
};

}  // namespace accordion::plan
