/* Copies of the database, made while the server goes on. */
#pragma once

#include "keys.h"

namespace weir {

// BACKUP STAGE START and END. Commits are blocked at the end, so the moment of the copy is that of all else that is backed
// up then; the copying itself is done by a thread of its own.
void prepare_for_backup();
void end_backup();

// How it stands with the last one.
Bytes backup_text();

// Gives up one that is being made.
void stop_backup();

} // namespace weir
