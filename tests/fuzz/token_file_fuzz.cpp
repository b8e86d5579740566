// SPDX-License-Identifier: BSD-3-Clause
// A file of token ids of any bytes is refused with std::invalid_argument, or
// all of its tokens can be read, unless one is not below the vocabulary's size.
// The same for the caches that are made of the data.
#include "accordion/data/token_file.h"

#include <span>
#include <stdexcept>
#include <vector>

#include "accordion/data/cache_file.h"
#include "accordion/data/token_stream.h"
#include "tests/fuzz/fuzz_support.h"

using accordion::testing::MemoryFile;
using accordion::testing::require;

namespace {

void read_tokens(const MemoryFile& memory, accordion::TokenDtype dtype) {
  std::int64_t count = 0;
  try {
    const auto file = accordion::inspect_token_file(memory.path(), dtype);
    count = file.count;
    require(count > 0 && file.offset + count * file.width == file.bytes);
    const accordion::TokenStream stream({file}, {.vocab_size = 50'000});
    require(stream.size() == count);
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(count));
    stream.read(0, tokens);
    for (const std::int64_t token : tokens) {
      require(token >= 0 && token < 50'000);
    }
  } catch (const std::invalid_argument&) {
    require(count == 0);  // refused before it was read
  } catch (const std::runtime_error&) {
    require(count > 0);  // an id out of range
  }
}

void read_cache(const MemoryFile& memory, std::size_t size) {
  const auto header = accordion::read_cache_header(memory.path());
  if (header) {
    require(header->count >= 0 &&
            accordion::CacheHeader::kBytes + header->count * header->width ==
                static_cast<std::int64_t>(size));
  }
  try {
    const auto table = accordion::PositionTable::open(memory.path());
    require(header &&
            static_cast<std::int64_t>(table.values().size()) == header->count);
  } catch (const std::invalid_argument&) {
    require(!header || header->width != 8);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  static const MemoryFile memory;
  memory.set_content(data, size);
  for (const auto dtype :
       {accordion::TokenDtype::Auto, accordion::TokenDtype::Uint16,
        accordion::TokenDtype::Uint32}) {
    read_tokens(memory, dtype);
  }
  read_cache(memory, size);
  return 0;
}
