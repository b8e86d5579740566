// SPDX-License-Identifier: BSD-3-Clause
//
// Uses a part of Accordion that needs no LibTorch.
#include <cstdio>

#include "accordion/shard/unit_layout.h"

int main() {
  const auto layout =
      accordion::UnitLayout::make({{.name = "weight", .shape = {257, 120}},
                                   {.name = "bias", .shape = {257}}},
                                  2);
  const accordion::Piece piece = layout.piece(0, 1);
  std::printf("rank 1 owns weight [%ld, %ld)\n", static_cast<long>(piece.begin),
              static_cast<long>(piece.end));
  return piece.end == 257 * 120 ? 0 : 1;
}
