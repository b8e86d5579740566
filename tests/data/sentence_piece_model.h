// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <string_view>

namespace accordion::testing {

/// Trains a SentencePiece model of `vocab_size` ids on a few sentences and
/// writes it into `folder`. `flags` are further ones of spm_train, as
/// "--eos_id=-1"; they win over those given here.
std::filesystem::path train_sentence_piece(const std::filesystem::path& folder,
                                           int vocab_size = 100,
                                           std::string_view flags = "");

/// Some sentences of the kind that the model was trained on.
std::string_view sentences();

}  // namespace accordion::testing
