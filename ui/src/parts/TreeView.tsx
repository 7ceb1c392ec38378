import { useVirtualizer } from '@tanstack/react-virtual'
import {
  useEffect,
  useId,
  useImperativeHandle,
  useMemo,
  useRef,
  type KeyboardEvent,
  type MouseEvent,
  type ReactNode,
  type Ref,
} from 'react'
import type { TreeLine, TreeLines } from './treeLines'
import classes from './TreeView.module.css'

export interface TreeHandle {
  focus: () => void
}

/** The state of a tree; the caller keeps it, as the tree is unmounted while another tab is shown. */
export interface TreeState {
  /** Key of the row that the keyboard acts on. */
  cursor: string
  /** Key of the row to scroll to as soon as it exists. */
  target: string
  scrollOffset: number
}

interface TreeViewProps<Row extends TreeLine> {
  ref?: Ref<TreeHandle>
  label: string
  testId: string
  rows: TreeLines<Row>
  rowHeight: number
  cursor: string
  target: string
  initialOffset: () => number
  onStateChange: (change: Partial<TreeState>) => void
  /** Render a row as an element with these attributes; `data-part` names its clickable parts. */
  draw: (row: Row, attributes: ReturnType<typeof lineAttributes>) => ReactNode
  onOpen: (row: Row, isOpen: boolean) => void
  /** A row was clicked, or Enter was pressed at it. */
  onAct: (row: Row, part: string | undefined) => void
  onSpace: (row: Row) => void
  onDouble?: (row: Row, part: string | undefined) => void
  onMenu?: (row: Row, x: number, y: number) => void
  /** A letter was typed; it is meant for the field above. */
  onType: () => void
}

export function lineAttributes(row: TreeLine, id: string, index: number, top: number, isCursor: boolean) {
  return {
    id,
    role: 'treeitem',
    'aria-level': row.depth + 1,
    'aria-posinset': row.nth,
    'aria-setsize': row.siblings,
    'aria-expanded': row.isOpen ?? undefined,
    'data-index': index,
    'data-cursor': isCursor || undefined,
    style: { top },
  } as const
}

export type LineAttributes = ReturnType<typeof lineAttributes>

/** A tree that renders only the visible rows; keyboard and mouse work as in an IDE. */
export function TreeView<Row extends TreeLine>(props: TreeViewProps<Row>) {
  const { rows, rowHeight, cursor, target, onStateChange } = props
  const id = useId()
  const scroller = useRef<HTMLDivElement>(null)
  const at = useMemo(() => rows.indexOf(cursor), [rows, cursor])
  // oxlint-disable-next-line react/incompatible-library -- its values are used only here, never memoised
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => rowHeight,
    getItemKey: (index) => rows.at(index)?.key ?? index,
    overscan: 16,
    initialOffset: props.initialOffset,
  })
  useImperativeHandle(props.ref, () => ({ focus: () => scroller.current?.focus() }), [])

  const { length } = rows
  useEffect(() => {
    const box = scroller.current
    if (!box || length === 0 || (virtual.scrollOffset ?? 0) <= box.scrollTop) return
    // Rows that arrive late cannot be scrolled to yet. If there are fewer rows than before, the browser stays at the
    // last rows without an event, and none would be rendered.
    box.scrollTop = virtual.scrollOffset ?? 0
    box.dispatchEvent(new Event('scroll'))
  }, [length, virtual])

  useEffect(() => {
    const index = target === '' ? -1 : rows.indexOf(target)
    if (index === -1) return
    const { scrollTop: first = 0, clientHeight: height = 0 } = scroller.current ?? {}
    const isVisible = index * rowHeight >= first && (index + 1) * rowHeight <= first + height
    if (!isVisible) virtual.scrollToIndex(index, { align: 'center' })
    onStateChange({ target: '' })
  }, [target, rows, rowHeight, virtual, onStateChange])

  const move = (index: number) => {
    const next = Math.max(0, Math.min(index, rows.length - 1))
    const row = rows.at(next)
    if (!row) return
    onStateChange({ cursor: row.key })
    virtual.scrollToIndex(next)
  }

  const keyPressed = (event: KeyboardEvent) => {
    const row = rows.at(at)
    const page = Math.max(1, Math.floor((scroller.current?.clientHeight ?? 0) / rowHeight) - 1)
    const acts: Record<string, () => void> = {
      ArrowDown: () => move(at + 1),
      ArrowUp: () => move(at - 1),
      PageDown: () => move(at + page),
      PageUp: () => move(at - page),
      Home: () => move(0),
      End: () => move(rows.length - 1),
      ArrowRight: () => {
        if (row?.isOpen === false) props.onOpen(row, true)
        else if (row?.isOpen) move(at + 1)
      },
      ArrowLeft: () => {
        if (row?.isOpen) props.onOpen(row, false)
        else if (row && row.parent >= 0) move(row.parent)
      },
      Enter: () => row && props.onAct(row, undefined),
      ' ': () => row && props.onSpace(row),
      '*': () => {
        const siblings = rows
          .loadedRows()
          .filter((other) => other.parent === row?.parent && other.isOpen === false)
        for (const sibling of siblings) props.onOpen(sibling, true)
      },
    }
    if (event.ctrlKey || event.metaKey || event.altKey || (event.shiftKey && event.key.startsWith('F')))
      return
    const pressed = acts[event.key]
    if (pressed) {
      event.preventDefault()
      event.stopPropagation()
      pressed()
    } else if (event.key.length === 1 && /[\p{L}\p{N}_.]/u.test(event.key)) {
      // The letter itself goes to the field, which receives the focus before the letter is inserted.
      props.onType()
    }
  }

  const rowOf = (event: MouseEvent) => {
    const element = event.target as HTMLElement
    const index = Number(element.closest<HTMLElement>('[data-index]')?.dataset['index'] ?? -1)
    return { row: rows.at(index), index, part: element.closest<HTMLElement>('[data-part]')?.dataset['part'] }
  }
  const clicked = (event: MouseEvent) => {
    const { row, part } = rowOf(event)
    if (!row) return
    onStateChange({ cursor: row.key })
    if (part === 'twist' && row.isOpen !== null) props.onOpen(row, !row.isOpen)
    else props.onAct(row, part)
  }
  const openMenu = (event: MouseEvent) => {
    const { row: clickedRow, index } = rowOf(event)
    const row = clickedRow ?? rows.at(at)
    if (!row || !props.onMenu) return
    event.preventDefault()
    onStateChange({ cursor: row.key })
    // From the keyboard it opens below the row.
    const box = event.button === 2 ? undefined : document.getElementById(`${id}-${clickedRow ? index : at}`)
    const { left, bottom } = box?.getBoundingClientRect() ?? {
      left: event.clientX - 40,
      bottom: event.clientY,
    }
    props.onMenu(row, left + 40, bottom)
  }

  const items = virtual.getVirtualItems()
  const isCursorThere = items.some((item) => item.index === at)
  return (
    <div
      ref={scroller}
      className={classes['tree']}
      role="tree"
      aria-label={props.label}
      aria-activedescendant={isCursorThere ? `${id}-${at}` : undefined}
      tabIndex={0}
      data-testid={props.testId}
      onKeyDown={keyPressed}
      onClick={clicked}
      onDoubleClick={(event) => {
        const { row, part } = rowOf(event)
        if (row) props.onDouble?.(row, part)
      }}
      onContextMenu={openMenu}
      onScroll={(event) => onStateChange({ scrollOffset: event.currentTarget.scrollTop })}
    >
      <div className={classes['rows']} style={{ height: virtual.getTotalSize() }} role="presentation">
        {items.map((item) => {
          const row = rows.at(item.index)
          if (!row) return null
          const isCursor = row.key === cursor
          return props.draw(row, lineAttributes(row, `${id}-${item.index}`, item.index, item.start, isCursor))
        })}
      </div>
    </div>
  )
}
