import { useVirtualizer } from '@tanstack/react-virtual'
import {
  useEffect,
  useId,
  useImperativeHandle,
  useMemo,
  useRef,
  type KeyboardEvent,
  type MouseEvent,
  type Ref,
} from 'react'
import { useTranslation } from 'react-i18next'
import classes from './nodes.module.css'
import type { EntryRow, PageName, Row } from './rows'
import { nodesTexts } from './texts'
import { ROW_HEIGHT, TreeRow, type Tick } from './TreeRow'
import { useTreeState } from './treeState'

export interface TreeHandle {
  focus: () => void
}

interface TreeProps {
  ref: Ref<TreeHandle>
  label: string
  rows: Row[]
  selected: string
  here: string
  searched: string
  tickOf: (row: EntryRow) => Tick
  locked: string | undefined
  onOpen: (row: EntryRow, isOpen: boolean) => void
  onOpenMany: (rows: EntryRow[]) => void
  onSelect: (row: EntryRow) => void
  onShow: (row: EntryRow) => void
  onTick: (row: EntryRow) => void
  onAgain: (page: PageName) => void
  onMenu: (row: EntryRow, x: number, y: number) => void
  /** A letter was typed: it is meant for the filter. */
  onType: () => void
}

/** The rows on the screen, with keyboard and mouse; what they mean is the caller's. */
export function Tree(props: TreeProps) {
  const { rows, selected, here, searched, tickOf, locked } = props
  const { t } = useTranslation(nodesTexts)
  const id = useId()
  const scroller = useRef<HTMLDivElement>(null)
  const cursor = useTreeState((tree) => tree.cursor)
  const target = useTreeState((tree) => tree.target)
  const setTree = useTreeState((tree) => tree.set)
  const places = useMemo(() => new Map(rows.map((row, index) => [row.key, index])), [rows])
  // eslint-disable-next-line react-hooks/incompatible-library -- its values are used only here, never memoised
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_HEIGHT,
    getItemKey: (index) => rows[index]?.key ?? index,
    overscan: 16,
    initialOffset: () => useTreeState.getState().scrollOffset,
  })
  useImperativeHandle(props.ref, () => ({ focus: () => scroller.current?.focus() }), [])

  useEffect(() => {
    const index = target === '' ? undefined : places.get(target)
    if (index === undefined) return
    const first = scroller.current?.scrollTop ?? 0
    const isVisible =
      index * ROW_HEIGHT >= first && (index + 1) * ROW_HEIGHT <= first + (scroller.current?.clientHeight ?? 0)
    if (!isVisible) virtual.scrollToIndex(index, { align: 'center' })
    setTree({ target: '' })
  }, [target, places, virtual, setTree])

  const at = places.get(cursor) ?? -1
  const move = (index: number) => {
    const next = rows[Math.max(0, Math.min(index, rows.length - 1))]
    if (!next) return
    setTree({ cursor: next.key })
    virtual.scrollToIndex(places.get(next.key) ?? 0)
  }
  const act = (row: EntryRow) => {
    if (row.isOpen === null) props.onSelect(row)
    else props.onOpen(row, !row.isOpen)
  }

  const keyPressed = (event: KeyboardEvent) => {
    const row = rows[at]
    const entry = row?.kind === 'entry' ? row : undefined
    const page = Math.max(1, Math.floor((scroller.current?.clientHeight ?? 0) / ROW_HEIGHT) - 1)
    const acts: Record<string, () => void> = {
      ArrowDown: () => move(at + 1),
      ArrowUp: () => move(at === -1 ? 0 : at - 1),
      PageDown: () => move(at + page),
      PageUp: () => move(at - page),
      Home: () => move(0),
      End: () => move(rows.length - 1),
      ArrowRight: () => {
        if (entry?.isOpen === false) props.onOpen(entry, true)
        else if (entry?.isOpen) move(at + 1)
      },
      ArrowLeft: () => {
        if (entry?.isOpen) props.onOpen(entry, false)
        else if (row && row.parent >= 0) move(row.parent)
      },
      Enter: () => entry && act(entry),
      ' ': () => {
        if (!entry) return
        if (tickOf(entry) !== null) props.onTick(entry)
        else act(entry)
      },
      '*': () => {
        const siblings = rows.filter((one) => one.kind === 'entry' && one.parent === row?.parent)
        props.onOpenMany(siblings.filter((one) => one.kind === 'entry').filter((one) => one.isOpen === false))
      },
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return
    const act_ = acts[event.key]
    if (act_) {
      event.preventDefault()
      event.stopPropagation()
      act_()
    } else if (event.key.length === 1 && /[\p{L}\p{N}_.]/u.test(event.key)) {
      props.onType()
    }
  }

  const rowOf = (event: MouseEvent) => {
    const element = event.target as HTMLElement
    const index = Number(element.closest<HTMLElement>('[data-index]')?.dataset['index'] ?? -1)
    return { row: rows[index], part: element.closest<HTMLElement>('[data-part]')?.dataset['part'] }
  }
  const clicked = (event: MouseEvent) => {
    const { row, part } = rowOf(event)
    if (!row) return
    setTree({ cursor: row.key })
    if (row.kind === 'failed') props.onAgain(row.page)
    if (row.kind !== 'entry') return
    if (part === 'tick') props.onTick(row)
    else act(row)
  }
  const menuAsked = (event: MouseEvent) => {
    const { row = rows[at] } = rowOf(event)
    if (row?.kind !== 'entry') return
    event.preventDefault()
    setTree({ cursor: row.key })
    const isKey = event.clientX === 0 && event.clientY === 0
    const box = isKey ? document.getElementById(`${id}-${places.get(row.key) ?? 0}`) : null
    const { left = event.clientX, bottom = event.clientY } = box?.getBoundingClientRect() ?? {}
    props.onMenu(row, isKey ? left + 40 : event.clientX, isKey ? bottom : event.clientY)
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
      data-testid="node-tree"
      onKeyDown={keyPressed}
      onClick={clicked}
      onDoubleClick={(event) => {
        const { row, part } = rowOf(event)
        if (row?.kind === 'entry' && row.isOpen === null && part !== 'tick') props.onShow(row)
      }}
      onContextMenu={menuAsked}
      onScroll={(event) => setTree({ scrollOffset: event.currentTarget.scrollTop })}
    >
      <div className={classes['rows']} style={{ height: virtual.getTotalSize() }} role="presentation">
        {items.map((item) => {
          const row = rows[item.index]
          return (
            row && (
              <TreeRow
                key={item.key}
                t={t}
                id={`${id}-${item.index}`}
                row={row}
                index={item.index}
                top={item.start}
                isCursor={row.key === cursor}
                isSelected={row.key === selected}
                isHere={row.key === here}
                tick={row.kind === 'entry' ? tickOf(row) : null}
                locked={locked}
                searched={searched}
              />
            )
          )
        })}
      </div>
    </div>
  )
}
