import { ActionIcon, Skeleton, TextInput } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { IconSearch, IconX } from '~/parts/icons'
import { useQueryClient } from '@tanstack/react-query'
import { useEffect, useMemo, useRef, type KeyboardEvent } from 'react'
import { useTranslation } from 'react-i18next'
import { keys } from '~/api/queries'
import type { NodeRecord } from '~/api/types'
import { Failure, Notice } from '~/parts/Notice'
import { count } from '~/parts/numbers'
import { TreeView, type TreeHandle } from '~/parts/TreeView'
import type { Action } from '~/state/actions'
import { useView } from '~/state/store'
import { useActions } from '~/state/useActions'
import { isFileOpen, lineName, ownFrame, sourceRows, type FoundNode, type SourceRow } from './lines'
import { MOST_FILES, useMarks, useNodesOfLines, useSources } from './queries'
import { SourceRowView } from './SourceRow'
import classes from './sources.module.css'
import { useSourcesState } from './sourcesState'
import { SourceText } from './SourceText'
import { sourcesTexts } from './texts'

const TYPING_MS = 150
const ROW_HEIGHT = 22

function isSame(node: NodeRecord | undefined, { rank, graph, entry }: FoundNode): boolean {
  return node?.name === entry.path && node.graphs.includes(graph) && node.rank === rank
}

/** The source lines of nodes, with the text of their files if the training process sent it. */
export function Sources() {
  const { t } = useTranslation(sourcesTexts)
  const client = useQueryClient()
  const run = useView((view) => view.run)
  const stackFilter = useView((view) => view.stackFilter)
  const setView = useView((view) => view.set)
  const selectNode = useView((view) => view.selectNode)
  const { query, file, turned, openLines, cursor, target, shown, line, isHeld } = useSourcesState()
  const { set, reset, turnFile, setLineOpen } = useSourcesState.getState()
  const [settled] = useDebouncedValue(query.trim(), TYPING_MS)
  const isSearch = settled !== ''
  const sources = useSources(settled)
  const everything = useSources('')
  const names = useMemo(() => [...openLines], [openLines])
  const nodes = useNodesOfLines(names)
  const marks = useMarks()
  const input = useRef<HTMLInputElement>(null)
  const tree = useRef<TreeHandle>(null)

  useEffect(() => {
    if (useSourcesState.getState().run !== run) reset(run)
  }, [run, reset])

  // The line of the selected node is scrolled into view once, so that users can scroll away.
  const frame = ownFrame(marks.node)
  const frameName = frame ? lineName(frame.file, frame.line) : ''
  useEffect(() => {
    if (isHeld) {
      set({ isHeld: false, shown: frameName })
      return
    }
    if (!frame || frameName === shown || everything.data === undefined) return
    const of = everything.data.files.find((record) => record.file === frame.file)
    if (!of) return
    if (!isFileOpen(of, turned, false)) turnFile(frame.file)
    const isTextShown = file !== '' && of.has_text
    set({
      shown: frameName,
      target: frameName,
      cursor: frameName,
      line: 0,
      ...(isTextShown ? { file: frame.file } : {}),
    })
  }, [frame, frameName, shown, everything.data, file, turned, turnFile, set, isHeld])

  const rows = useMemo(
    () =>
      sourceRows({
        files: sources.data?.files ?? [],
        turned,
        isSearch,
        openLines,
        nodes,
        hits: marks.hits,
        origins: marks.origins,
      }),
    [sources.data, turned, isSearch, openLines, nodes, marks],
  )

  const actions = useMemo(
    (): Action[] => [
      {
        id: 'sources.search',
        label: t('search'),
        keys: '/',
        group: t('group'),
        run: () => {
          set({ file: '' })
          requestAnimationFrame(() => input.current?.focus())
        },
      },
    ],
    [t, set],
  )
  useActions(actions)

  const showNodes = (name: string) => setView({ stackFilter: name, left: 'nodes' })
  const act = (row: SourceRow, part: string | undefined) => {
    if (row.kind === 'file') {
      if (part === 'text') set({ file: row.file.file, line: 0 })
      else turnFile(row.file.file)
    } else if (row.kind === 'node') {
      const { graph, entry } = row.node
      selectNode({ rank: row.node.rank, graph, name: entry.path })
    } else if (row.kind === 'waiting') {
      if (row.message !== undefined)
        void client.refetchQueries({ queryKey: keys.hits(run, 'nodes of a line') })
    } else {
      showNodes(row.name)
    }
  }
  const keyPressed = (event: KeyboardEvent) => {
    if (event.key === 'ArrowDown' || event.key === 'Enter') {
      event.preventDefault()
      tree.current?.focus()
    } else if (event.key === 'Escape' && query) {
      event.stopPropagation()
      set({ query: '' })
    }
  }

  if (file !== '') {
    return (
      <div className="fill" data-testid="panel-sources">
        <SourceText
          file={file}
          lines={everything.data?.files.find((record) => record.file === file)?.lines}
          hits={marks.hits}
          origins={marks.origins}
          shownLine={line || (frame?.file === file ? (frame.line ?? 0) : 0)}
          markedLine={line}
          onLine={showNodes}
          onBack={() => set({ file: '', target: cursor, line: 0 })}
        />
      </div>
    )
  }
  const { data, error } = sources
  return (
    <div className="fill" data-testid="panel-sources">
      <div className={classes['bar']}>
        <TextInput
          ref={input}
          flex={1}
          miw={0}
          aria-label={t('search')}
          placeholder={t('searchHint')}
          value={query}
          leftSection={<IconSearch size={13} />}
          leftSectionWidth={26}
          rightSection={
            query && (
              <ActionIcon size="xs" aria-label={t('clear')} onClick={() => set({ query: '' })}>
                <IconX size={12} />
              </ActionIcon>
            )
          }
          styles={{ input: { height: 26, minHeight: 26 } }}
          spellCheck={false}
          data-testid="source-search"
          onChange={(event) => set({ query: event.currentTarget.value })}
          onKeyDown={keyPressed}
        />
      </div>
      {error ? (
        <Failure error={error} retry={() => void sources.refetch()} />
      ) : data === undefined ? (
        <div style={{ padding: 8 }}>
          {Array.from({ length: 8 }, (_, index) => (
            <Skeleton key={index} height={10} mb={12} width={`${50 + ((index * 29) % 45)}%`} />
          ))}
        </div>
      ) : data.total === 0 ? (
        <Notice title={t(isSearch ? 'noMatch' : 'noLines')}>
          {isSearch ? t('noMatchWhy', { query: settled }) : t('noLinesWhy')}
        </Notice>
      ) : (
        <TreeView<SourceRow>
          ref={tree}
          label={t('lines')}
          testId="source-tree"
          rows={rows}
          rowHeight={ROW_HEIGHT}
          cursor={cursor}
          target={target}
          initialOffset={() => useSourcesState.getState().scrollOffset}
          onStateChange={set}
          onOpen={(row, isOpen) => {
            if (row.kind === 'file') turnFile(row.file.file)
            else if (row.kind === 'line') setLineOpen(row.name, isOpen)
          }}
          onAct={act}
          onSpace={(row) => {
            if (row.kind === 'line') setLineOpen(row.name, row.isOpen !== true)
            else act(row, undefined)
          }}
          onType={() => input.current?.focus()}
          draw={(row, attributes) => (
            <SourceRowView
              key={row.key}
              t={t}
              row={row}
              attributes={attributes}
              isSelected={
                row.kind === 'line'
                  ? row.name === stackFilter
                  : row.kind === 'node' && isSame(marks.node, row.node)
              }
            />
          )}
        />
      )}
      {data && data.total > data.files.length && (
        <p className={classes['note']}>
          {t('tooMany', { shown: count(MOST_FILES), total: count(data.total) })}
        </p>
      )}
    </div>
  )
}
