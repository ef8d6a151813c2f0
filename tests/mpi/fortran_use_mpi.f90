! SPDX-License-Identifier: Apache-2.0
!
! Fortran through `use mpi`: derived types, a stencil exchange with nonblocking calls, MPI_IN_PLACE gathers, a
! threaded start, and errors that are returned.
!
! ranks: 2
! calls: MPI_Init_thread=1 MPI_Type_vector=1 MPI_Type_commit=1 MPI_Type_free=1 MPI_Isend=20 MPI_Irecv=20 MPI_Waitall=10
! calls: MPI_Allreduce=10 MPI_Allgather=1 MPI_Comm_set_errhandler=1 MPI_Finalize=1 MPI_Send=1
program fortran_use_mpi
  use mpi
  implicit none
  integer, parameter :: n = 64
  integer :: ierr, me, peer, provided, row, step, i, j, requests(4), everyone(2), class
  double precision :: grid(0:n+1, 0:n+1), next(n, n), change

  call MPI_Init_thread(MPI_THREAD_FUNNELED, provided, ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, me, ierr)
  peer = 1 - me
  do j = 0, n + 1
    do i = 0, n + 1
      grid(i, j) = sin(0.1d0 * (i + n * me)) * cos(0.2d0 * j)
    end do
  end do
  call MPI_Type_vector(n + 2, 1, n + 2, MPI_DOUBLE_PRECISION, row, ierr)
  call MPI_Type_commit(row, ierr)
  do step = 1, 10
    call MPI_Irecv(grid(0, 0), 1, row, peer, 1, MPI_COMM_WORLD, requests(1), ierr)
    call MPI_Irecv(grid(n+1, 0), 1, row, peer, 2, MPI_COMM_WORLD, requests(2), ierr)
    call MPI_Isend(grid(n, 0), 1, row, peer, 1, MPI_COMM_WORLD, requests(3), ierr)
    call MPI_Isend(grid(1, 0), 1, row, peer, 2, MPI_COMM_WORLD, requests(4), ierr)
    call MPI_Waitall(4, requests, MPI_STATUSES_IGNORE, ierr)
    do j = 1, n
      do i = 1, n
        next(i, j) = 0.25d0 * (grid(i-1, j) + grid(i+1, j) + grid(i, j-1) + grid(i, j+1))
      end do
    end do
    change = sum(abs(next - grid(1:n, 1:n)))
    grid(1:n, 1:n) = next
    call MPI_Allreduce(MPI_IN_PLACE, change, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
  end do
  call MPI_Type_free(row, ierr)
  everyone(me + 1) = 10 + me
  call MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, everyone, 1, MPI_INTEGER, MPI_COMM_WORLD, ierr)
  if (any(everyone /= (/ 10, 11 /))) stop 1
  call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN, ierr)
  call MPI_Send(me, 1, MPI_INTEGER, 999, 0, MPI_COMM_WORLD, ierr)
  call MPI_Error_class(ierr, class, i)
  if (class /= MPI_ERR_RANK) stop 2
  call MPI_Finalize(ierr)
  if (me == 0) print '(a, z16.16)', 'fortran_use_mpi ', transfer(change, 1_8)
end program
