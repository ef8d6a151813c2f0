! SPDX-License-Identifier: Apache-2.0
!
! What replay.c does, in Fortran: rank 0 takes what comes first, with MPI_Recv from any source and with MPI_Waitany, and
! its answers depend on that order. Prints the bits of what it computed. Usage: replay_fortran ROUNDS
program replay_fortran
  use mpi
  use, intrinsic :: iso_fortran_env, only : int64, real64
  implicit none
  integer :: rank, ranks, rounds, error, i, round, source, index, status(MPI_STATUS_SIZE)
  integer(int64) :: noise
  integer, allocatable :: requests(:)
  real(real64), allocatable :: values(:)
  real(real64) :: total, value, answer
  character(16) :: argument

  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  call get_command_argument(1, argument)
  read (argument, *) rounds
  call system_clock(noise)
  noise = noise + rank
  total = 1
  if (rank == 0) then
    do i = 1, rounds * (ranks - 1)
      call MPI_Recv(value, 1, MPI_DOUBLE_PRECISION, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, status, error)
      source = status(MPI_SOURCE)
      total = total * 0.9990234375d0 + value * source + status(MPI_TAG)
      call MPI_Send(total, 1, MPI_DOUBLE_PRECISION, source, 1, MPI_COMM_WORLD, error)
    end do
    call MPI_Barrier(MPI_COMM_WORLD, error)
    allocate(requests(ranks - 1), values(ranks - 1))
    do i = 1, ranks - 1
      call MPI_Irecv(values(i), 1, MPI_DOUBLE_PRECISION, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, requests(i), error)
    end do
    do i = 1, ranks - 1
      call MPI_Waitany(ranks - 1, requests, index, status, error)
      total = total * 0.5d0 + values(index) * index + status(MPI_SOURCE)
    end do
  else
    value = rank
    do round = 1, rounds
      call delay()
      call MPI_Send(value, 1, MPI_DOUBLE_PRECISION, 0, mod(round, 3), MPI_COMM_WORLD, error)
      call MPI_Recv(answer, 1, MPI_DOUBLE_PRECISION, 0, 1, MPI_COMM_WORLD, status, error)
      value = value * 0.5d0 + answer * 1.0001d0
    end do
    call MPI_Barrier(MPI_COMM_WORLD, error)
    call MPI_Send(value, 1, MPI_DOUBLE_PRECISION, 0, 5, MPI_COMM_WORLD, error)
    total = value
  end if
  call MPI_Allreduce(MPI_IN_PLACE, total, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
  if (rank == 0) print '(a, z16.16)', 'replay_fortran ', total
  call MPI_Finalize(error)

contains

  subroutine delay()
    integer(int64) :: turn
    integer(int64), volatile :: sink
    noise = iand(noise * 1103515245_int64 + 12345_int64, int(z'7fffffff', int64))
    do turn = 1, mod(noise / 65536, 20000_int64)
      sink = turn
    end do
  end subroutine
end program
