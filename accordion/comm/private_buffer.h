// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "accordion/comm/communicator.h"

namespace accordion::detail {

/// A CommBuffer that no other rank sees: zeroed, page aligned, every page
/// present, in huge pages where possible. Throws CommError that names the bytes
/// when the memory is not there.
std::unique_ptr<CommBuffer> make_private_buffer(std::int64_t bytes,
                                                std::string_view label);

/// A CommBuffer without memory, whose addresses are nobody else's: an access to
/// them ends the process. Throws CommError when there are not as many.
std::unique_ptr<CommBuffer> make_address_buffer(std::int64_t bytes,
                                                std::string_view label);

}  // namespace accordion::detail
