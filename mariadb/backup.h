/* Copies of the database, made while the server goes on. */
#pragma once

#include "bytes.h"

namespace weir {

// BACKUP STAGE START and END. A copy that was asked for before the start is begun at the end, if
// commits are blocked then, so that it is of the same moment as all else. A thread makes it.
void prepare_for_backup();
void end_backup();

// How it stands with the last copy; and how many BACKUP STAGEs have begun: whoever asked for the
// copy knows by that whether it went to his own.
Bytes backup_text();
ulonglong backup_stages();

// Gives up the copy that is being made, and doesn't wait for that; does.
void give_up_backup();
void stop_backup();

} // namespace weir
