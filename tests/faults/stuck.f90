! SPDX-License-Identifier: Apache-2.0
!
! Classes of stuck.c in Fortran: stuck CLASS RANK FOLDER. The line table of gfortran has for the first call in a branch, and for the one
! in front of an END, the line of the statement around it: these are marked as well.
module solver
  use mpi
  use iso_c_binding, only : c_int, c_ptr, c_null_ptr, c_char, c_null_char
  implicit none
  interface
    integer(c_int) function usleep(microseconds) bind(c)
      import :: c_int
      integer(c_int), value :: microseconds
    end function
    integer(c_int) function raise(signal) bind(c)
      import :: c_int
      integer(c_int), value :: signal
    end function
    integer(c_int) function alarm(seconds) bind(c)
      import :: c_int
      integer(c_int), value :: seconds
    end function
  end interface
  integer :: me, count, culprit, field, copy
  logical :: wrong = .false.
  character(len=32) :: kind
  character(len=1024) :: folder
  double precision, volatile :: sink
contains
  subroutine one_step()
    double precision :: total
    integer :: error, status(MPI_STATUS_SIZE), give, get
    integer(c_int) :: ignored
    ignored = usleep(2000)
    give = me
    call MPI_Sendrecv(give, 1, MPI_INTEGER, mod(me + 1, count), 1, get, 1, MPI_INTEGER, mod(me + count - 1, count), 1, field, &
                      status, error)
    call MPI_Allreduce(1d0, total, 1, MPI_DOUBLE_PRECISION, MPI_SUM, field, error)
    if (nint(total) /= count) wrong = .true.
  end subroutine

  subroutine relax()
    double precision :: x
    x = 1
    do
      x = x * 0.999d0 + 1  ! AT computing
      sink = x  ! AT computing
    end do  ! AT computing
  end subroutine

  subroutine checkpoint()
    open(unit=17, file=trim(folder) // "/fifo", action="read")  ! AT file_open
  end subroutine

  subroutine stand_still()
    integer :: error, status(MPI_STATUS_SIZE), value, next
    logical :: flag
    double precision :: seconds, now
    integer(c_int) :: ignored
    integer :: i, unit
    next = mod(me + 1, count)
    value = 0
    if (me == culprit) then
      open(newunit=unit, file=trim(folder) // "/injected", status="new")
      close(unit)
    end if
    select case (trim(kind))
    case ("cycle")
      call MPI_Recv(value, 1, MPI_INTEGER, next, 7, field, status, error)  ! AT cycle
    case ("order")
      if (me == culprit) then  ! AT order
        call MPI_Barrier(copy, error)  ! AT order
        call MPI_Barrier(field, error)
      else
        call MPI_Barrier(field, error)
        call MPI_Barrier(copy, error)
      end if
    case ("tag")
      if (me == culprit) call MPI_Send(value, 1, MPI_INTEGER, next, 9, field, error)
      if (me == mod(culprit + 1, count)) &
        call MPI_Recv(value, 1, MPI_INTEGER, culprit, 8, field, status, error)  ! AT tag
    case ("mismatch")
      if (me == culprit) then  ! AT mismatch
        call MPI_Barrier(field, error)  ! AT mismatch
      else
        call MPI_Allreduce(1d0, seconds, 1, MPI_DOUBLE_PRECISION, MPI_SUM, field, error)
      end if
    case ("behind")
      if (me == culprit) then  ! AT behind
        call MPI_Barrier(field, error)  ! AT behind
      else
        call one_step()
      end if
    case ("livelock_all")
      flag = .false.
      do while (.not. flag)
        call MPI_Iprobe(MPI_ANY_SOURCE, 13, field, flag, status, error)  ! AT livelock_all
      end do
    case ("computing")
      if (me == culprit) call relax()  ! AT computing
    case ("stopped")
      if (me == culprit) ignored = raise(19_c_int)  ! AT stopped
    case ("killed")
      if (me == culprit) ignored = raise(9_c_int)
    case ("file_open")
      if (me == culprit) call checkpoint()
    case ("slow")
      do i = 1, 6
        if (me == culprit) then
          seconds = MPI_Wtime() + 3
          now = 0
          do while (now < seconds)
            do value = 1, 1000000
              sink = value
            end do
            now = MPI_Wtime()
          end do
        end if
        call one_step()
      end do
    end select
  end subroutine
end module

program stuck  ! AT finished
  use solver
  implicit none
  integer :: error, i, unit
  integer(c_int) :: ignored
  character(len=32) :: word
  call get_command_argument(1, kind)
  call get_command_argument(2, word)
  call get_command_argument(3, folder)
  read(word, *) culprit
  ignored = alarm(600_c_int)
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, me, error)
  call MPI_Comm_size(MPI_COMM_WORLD, count, error)
  call MPI_Comm_dup(MPI_COMM_WORLD, field, error)
  call MPI_Comm_set_name(field, "field", error)
  call MPI_Comm_dup(field, copy, error)
  do i = 1, 60
    call one_step()
  end do
  call MPI_Barrier(field, error)
  if (trim(kind) == "finished" .and. me == culprit) then
    open(newunit=unit, file=trim(folder) // "/injected", status="new")
    close(unit)
  else
    call stand_still()
    call one_step()
  end if
  call MPI_Finalize(error)  ! AT finished
  if (me == 0) print '(a)', merge("stuck wrong", "stuck right", wrong)
end program
