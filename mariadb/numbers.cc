#include "numbers.h"
#include "database.h"
#include "errors.h"
#include "own_transaction.h"
#include <random>

namespace weir {

// No database has such a table: their names have a slash.
static const Bytes NAME= "#auto_increment";
static WeirTable *numbers;

bool open_numbers()
{
  WeirResult result= weir_table_open(database, bytes_of(NAME), &numbers);
  if (result == WEIR_RESULT_NO_TABLE)
  {
    result= weir_table_create(database, bytes_of(NAME), nullptr, 0, WeirBytes{nullptr, 0}, false);
    if (result == WEIR_RESULT_OK)
      result= weir_table_open(database, bytes_of(NAME), &numbers);
  }
  return result == WEIR_RESULT_OK;
}

void close_numbers()
{
  weir_table_close(numbers);
  numbers= nullptr;
}

ulonglong new_number()
{
  std::random_device random;
  ulonglong number= ulonglong(random()) << 32 | random();
  // 0 stands for none.
  return number ? number : 1;
}

static Bytes bytes_of_number(ulonglong n)
{
  uchar bytes[8];
  int8store(bytes, n);
  return Bytes(reinterpret_cast<const char *>(bytes), sizeof bytes);
}

// Holds a row that was read.
struct Row
{
  WeirRow *row= weir_row_open();
  ~Row() { weir_row_close(row); }
};

static WeirResult read_in(WeirTransaction *transaction, ulonglong number, WeirLock lock,
                          ulonglong *value)
{
  Row row;
  WeirBytes found;
  Bytes key= bytes_of_number(number);
  WeirResult result= weir_get(transaction, numbers, bytes_of(key), lock, row.row, &found);
  if (result == WEIR_RESULT_OK && found.len != 8)
    return damaged("a value of AUTO_INCREMENT that is kept makes no sense");
  *value= result == WEIR_RESULT_OK ? uint8korr(found.data) : 0;
  return result;
}

WeirResult read_number(ulonglong number, ulonglong *value)
{
  OwnTransaction reader;
  WeirResult result= reader.begin();
  if (result == WEIR_RESULT_OK)
    result= read_in(reader.transaction, number, WEIR_LOCK_NONE, value);
  return result == WEIR_RESULT_NOT_FOUND ? WEIR_RESULT_OK : result;
}

static WeirResult update_in(WeirTransaction *transaction, ulonglong number, ulonglong value)
{
  Bytes key= bytes_of_number(number), row= bytes_of_number(value);
  bool unseen;
  return weir_update(transaction, numbers, bytes_of(key), bytes_of(row), nullptr, 0, nullptr, 0,
                     &unseen);
}

WeirResult write_number(ulonglong number, ulonglong value)
{
  OwnTransaction writer;
  Bytes key= bytes_of_number(number), row= bytes_of_number(value);
  ulonglong before;
  WeirResult result= writer.begin();
  if (result == WEIR_RESULT_OK)
    result= read_in(writer.transaction, number, WEIR_LOCK_EXCLUSIVE, &before);
  if (result == WEIR_RESULT_NOT_FOUND)
    result= weir_insert(writer.transaction, numbers, bytes_of(key), bytes_of(row), nullptr, 0,
                        WEIR_IN_THE_WAY_LOCKED);
  else if (result == WEIR_RESULT_OK)
    result= update_in(writer.transaction, number, value);
  // The log has it before the commit of the rows that it is for.
  return result == WEIR_RESULT_OK ? weir_commit(writer.transaction, WEIR_DURABILITY_RELAXED)
                                  : result;
}

void take_back_number(ulonglong number, ulonglong written, ulonglong value)
{
  OwnTransaction writer;
  ulonglong before;
  if (writer.begin() == WEIR_RESULT_OK &&
      read_in(writer.transaction, number, WEIR_LOCK_EXCLUSIVE, &before) == WEIR_RESULT_OK &&
      before == written && update_in(writer.transaction, number, value) == WEIR_RESULT_OK)
    weir_commit(writer.transaction, WEIR_DURABILITY_RELAXED);
}

void drop_number(ulonglong number)
{
  if (number == 0)
    return;
  OwnTransaction writer;
  Bytes key= bytes_of_number(number);
  // What can't be deleted does no harm: nobody asks for it again.
  if (writer.begin() == WEIR_RESULT_OK &&
      weir_delete(writer.transaction, numbers, bytes_of(key), nullptr, 0) == WEIR_RESULT_OK)
    weir_commit(writer.transaction, WEIR_DURABILITY_RELAXED);
}

} // namespace weir
