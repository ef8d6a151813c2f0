! SPDX-License-Identifier: Apache-2.0
!
! Some of touched.c's cases in Fortran: touched_fortran CASE wrong|right
program touched_fortran
  use mpi_f08
  implicit none
  integer, parameter :: n = 1000, large = 100000
  integer, asynchronous :: numbers(large)
  integer :: rank, nothing(1), count
  character(40) :: name, which
  logical :: wrong
  type(MPI_Request) :: request

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call get_command_argument(1, name)
  call get_command_argument(2, which)
  wrong = which == "wrong"
  numbers = rank + 1
  count = merge(large, n, index(name, "large") > 0)
  if (name(1:4) == "send") then
    if (rank == 0) then
      call MPI_Issend(numbers, count, MPI_INTEGER, 1, 1, MPI_COMM_WORLD, request)
      if (wrong) numbers(6) = 4711
      call MPI_Wait(request, MPI_STATUS_IGNORE)
      if (.not. wrong) numbers(6) = 4711
    else
      call MPI_Recv(numbers, count, MPI_INTEGER, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    end if
  else if (rank == 0) then
    if (name(1:12) == "receive-lost") call MPI_Recv(nothing, 0, MPI_INTEGER, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    call MPI_Send(numbers, count, MPI_INTEGER, 1, 1, MPI_COMM_WORLD)
    if (name(1:12) /= "receive-lost") call MPI_Send(nothing, 0, MPI_INTEGER, 1, 8, MPI_COMM_WORLD)
  else
    call MPI_Irecv(numbers, count, MPI_INTEGER, 0, 1, MPI_COMM_WORLD, request)
    if (name(1:12) /= "receive-lost") call MPI_Recv(nothing, 0, MPI_INTEGER, 0, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    if (wrong) numbers(7) = 4711
    if (name(1:12) == "receive-lost") call MPI_Send(nothing, 0, MPI_INTEGER, 0, 9, MPI_COMM_WORLD)
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    if (.not. wrong) numbers(7) = 4711
  end if
  call MPI_Finalize()
end program
