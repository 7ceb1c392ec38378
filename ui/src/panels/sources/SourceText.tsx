import { ActionIcon, Skeleton, Tooltip } from '@mantine/core'
import { IconAlertTriangleFilled, IconArrowLeft } from '~/parts/icons'
import { useVirtualizer } from '@tanstack/react-virtual'
import { useEffect, useId, useMemo, useRef, useState, type CSSProperties, type KeyboardEvent } from 'react'
import { useTranslation } from 'react-i18next'
import type { SourceFile } from '~/api/types'
import { Failure } from '~/parts/Notice'
import { count } from '~/parts/numbers'
import { baseName, lineName, type Origin } from './lines'
import { useSourceText } from './queries'
import classes from './sources.module.css'
import { OriginSign } from './SourceRow'
import { sourcesTexts } from './texts'

const LINE_HEIGHT = 18

interface SourceTextProps {
  file: string
  /** Lines of the file that have nodes; undefined while they load. */
  lines: SourceFile['lines'] | undefined
  hits: ReadonlyMap<string, number>
  origins: ReadonlyMap<string, Origin>
  /** The line to show, from 1; 0 for none. */
  shownLine: number
  /** A line that the user asked for, from 1; 0 for none. */
  markedLine: number
  onLine: (name: string) => void
  onBack: () => void
}

/** The text of a source file as it was run, with the number of nodes and hits of its lines. */
export function SourceText(props: SourceTextProps) {
  const { t } = useTranslation(sourcesTexts)
  const { file, onBack } = props
  const { data: text, error, refetch } = useSourceText(file)
  const name = baseName(file)
  return (
    <>
      <div className={classes['bar']}>
        <Tooltip label={t('back')}>
          <ActionIcon size="sm" aria-label={t('back')} data-testid="source-back" onClick={onBack}>
            <IconArrowLeft size={15} />
          </ActionIcon>
        </Tooltip>
        <p className={classes['name']} title={file}>
          {name}
        </p>
      </div>
      {error ? (
        <Failure error={error} retry={() => void refetch()} />
      ) : text === undefined ? (
        <div style={{ padding: 8 }}>
          {Array.from({ length: 12 }, (_, index) => (
            <Skeleton key={index} height={9} mb={9} width={`${40 + ((index * 29) % 55)}%`} />
          ))}
        </div>
      ) : (
        <Lines {...props} text={text} />
      )}
    </>
  )
}

function Lines({
  file,
  lines,
  hits,
  origins,
  shownLine,
  markedLine,
  onLine,
  text,
}: SourceTextProps & { text: string }) {
  const { t } = useTranslation(sourcesTexts)
  const id = useId()
  const scroller = useRef<HTMLDivElement>(null)
  const [cursor, setCursor] = useState(0)
  const written = useMemo(() => text.split(/\r?\n/), [text])
  const made = useMemo(() => new Map(lines?.map((line) => [line.line, line])), [lines])
  const digits = `${written.length}`.length
  // oxlint-disable-next-line react/incompatible-library -- its values are used only here, never memoised
  const virtual = useVirtualizer({
    count: written.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => LINE_HEIGHT,
    overscan: 20,
  })
  useEffect(() => {
    if (shownLine > 0) virtual.scrollToIndex(shownLine - 1, { align: 'center' })
  }, [shownLine, virtual])

  const move = (by: 1 | -1) => {
    const numbers = [...made.keys()].sort((a, b) => a - b)
    const next = by > 0 ? numbers.find((line) => line > cursor) : numbers.findLast((line) => line < cursor)
    if (next === undefined) return
    setCursor(next)
    virtual.scrollToIndex(next - 1)
  }
  const keyPressed = (event: KeyboardEvent) => {
    if (event.key === 'ArrowDown') move(1)
    else if (event.key === 'ArrowUp') move(-1)
    else if (event.key === 'Enter' && made.has(cursor)) onLine(lineName(file, cursor))
    else return
    event.preventDefault()
  }
  return (
    <div
      ref={scroller}
      className={classes['text']}
      style={{ '--digits': digits } as CSSProperties}
      role="listbox"
      aria-label={t('textOf', { file: baseName(file) })}
      aria-activedescendant={cursor > 0 ? `${id}-${cursor}` : undefined}
      tabIndex={0}
      data-testid="source-text"
      onKeyDown={keyPressed}
    >
      <div style={{ position: 'relative', height: virtual.getTotalSize() }} role="presentation">
        {virtual.getVirtualItems().map(({ index, start }) => {
          const number = index + 1
          const line = made.get(number)
          const name = lineName(file, number)
          const hitCount = hits.get(name) ?? 0
          const nodes = line ? t('nodes', { count: line.nodes, nodes: count(line.nodes) }) : ''
          return (
            <div
              key={index}
              id={`${id}-${number}`}
              className={classes['textLine']}
              style={{ top: start }}
              role={line ? 'option' : 'presentation'}
              aria-selected={line ? number === cursor : undefined}
              data-testid={line ? 'source-line' : undefined}
              data-line={number}
              data-nodes={line?.nodes}
              data-hits={hitCount || undefined}
              data-origin={origins.get(name)}
              data-cursor={number === (cursor || markedLine) || undefined}
              title={
                line ? [nodes, hitCount ? t('hits', { count: hitCount }) : t('filter')].join('\n') : undefined
              }
              onClick={() => line && onLine(name)}
            >
              <span className={classes['gutter']}>
                {hitCount > 0 ? (
                  <IconAlertTriangleFilled size={10} role="img" aria-label={t('hits', { count: hitCount })} />
                ) : (
                  <span />
                )}
                <span>{number}</span>
                <OriginSign t={t} origin={origins.get(name)} />
              </span>
              <span className={classes['written']}>{written[index]}</span>
              {line && <span className={classes['badge']}>· {count(line.nodes)}</span>}
            </div>
          )
        })}
      </div>
    </div>
  )
}
