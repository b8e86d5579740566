// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/module/unit_hooks.h"

#include <c10/util/Exception.h>

namespace accordion {

void UnitBase::require_unsharded(const char* operation,
                                 const char* remedy) const {
  TORCH_CHECK_VALUE(
      !hooks_, "[Unit::", operation,
      "] the module is sharded, its parameters are pieces on this rank. ",
      remedy);
}

}  // namespace accordion
