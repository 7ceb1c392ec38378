import { ActionIcon, Collapse, Indicator, SegmentedControl, Select, TextInput, Tooltip } from '@mantine/core'
import { IconFilter, IconSearch, IconX } from '~/parts/icons'
import { useId, type KeyboardEvent, type ReactNode, type Ref } from 'react'
import { useTranslation } from 'react-i18next'
import type { GraphRecord } from '~/api/types'
import { count } from '~/parts/numbers'
import { useGraphName } from '~/parts/variants'
import { useView } from '~/state/store'
import { shortLine, type Filter, type Kind } from './filter'
import classes from './nodes.module.css'
import { nodesTexts } from './texts'
import { useTreeState } from './treeState'

const ALL = 'all'

interface FiltersProps {
  input: Ref<HTMLInputElement>
  filter: Filter
  graphs: readonly GraphRecord[]
  onChange: (change: Partial<Filter>) => void
  onDown: () => void
  children: ReactNode
}

/** The filter by name and, behind a button, all other filters; active filters remain visible as chips. */
export function Filters({ input, filter, graphs, onChange, onDown, children }: FiltersProps) {
  const { t } = useTranslation(nodesTexts)
  const isOpen = useTreeState((tree) => tree.hasMoreFilters)
  const setTree = useTreeState((tree) => tree.set)
  const graph = useView((view) => view.graph)
  const setView = useView((view) => view.set)
  const graphName = useGraphName()
  const id = useId()

  const keyPressed = (event: KeyboardEvent) => {
    if (event.key === 'ArrowDown' || event.key === 'Enter') {
      event.preventDefault()
      onDown()
    } else if (event.key === 'Escape' && filter.name) {
      event.stopPropagation()
      onChange({ name: '' })
    }
  }
  const chips: { text: string; remove: () => void }[] = []
  if (filter.kind) {
    const kind = t(`kinds.${filter.kind}`)
    chips.push({ text: t('withKind', { kind }), remove: () => onChange({ kind: '' }) })
  }
  if (filter.type) {
    chips.push({ text: t('withType', { type: filter.type }), remove: () => onChange({ type: '' }) })
  }
  if (filter.stack) {
    const line = shortLine(filter.stack)
    chips.push({ text: t('withStack', { line }), remove: () => onChange({ stack: '' }) })
  }
  if (graph) {
    chips.push({ text: t('withGraph', { graph }), remove: () => setView({ graph: '' }) })
  }
  return (
    <>
      <div className={classes['bar']}>
        <TextInput
          ref={input}
          flex={1}
          miw={0}
          aria-label={t('filter')}
          placeholder={t('filterHint')}
          value={filter.name}
          leftSection={<IconSearch size={13} />}
          leftSectionWidth={26}
          rightSection={
            filter.name && (
              <ActionIcon size="xs" aria-label={t('clear')} onClick={() => onChange({ name: '' })}>
                <IconX size={12} />
              </ActionIcon>
            )
          }
          styles={{ input: { height: 26, minHeight: 26 } }}
          spellCheck={false}
          data-testid="node-filter"
          onChange={(event) => onChange({ name: event.currentTarget.value })}
          onKeyDown={keyPressed}
        />
        <Tooltip label={t(isOpen ? 'fewer' : 'more')}>
          <Indicator disabled={chips.length === 0} size={7} offset={4}>
            <ActionIcon
              size="sm"
              aria-label={t(isOpen ? 'fewer' : 'more')}
              aria-expanded={isOpen}
              variant={isOpen ? 'light' : 'subtle'}
              data-testid="node-more-filters"
              onClick={() => setTree({ hasMoreFilters: !isOpen })}
            >
              <IconFilter size={15} />
            </ActionIcon>
          </Indicator>
        </Tooltip>
        {children}
      </div>
      <Collapse expanded={isOpen} transitionDuration={0}>
        <div className={classes['fields']}>
          <SegmentedControl
            aria-label={t('kindLabel')}
            fullWidth
            style={{ gridColumn: '1 / -1' }}
            value={filter.kind || ALL}
            data={[ALL, 'weight', 'gradient', 'activation'].map((kind) => ({
              value: kind,
              label: t(`kinds.${kind}`),
            }))}
            styles={{ label: { padding: '2px 3px', fontSize: 11 } }}
            onChange={(kind) => onChange({ kind: (kind === ALL ? '' : kind) as Kind })}
          />
          <label htmlFor={`${id}-type`}>{t('type')}</label>
          <TextInput
            id={`${id}-type`}
            placeholder={t('typeHint')}
            value={filter.type}
            spellCheck={false}
            onChange={(event) => onChange({ type: event.currentTarget.value })}
          />
          <label htmlFor={`${id}-stack`}>{t('stack')}</label>
          <TextInput
            id={`${id}-stack`}
            placeholder={t('stackHint')}
            value={filter.stack}
            title={filter.stack}
            spellCheck={false}
            onChange={(event) => onChange({ stack: event.currentTarget.value })}
          />
          {graphs.length > 1 && (
            <>
              <label htmlFor={`${id}-graph`}>{t('graph')}</label>
              <Select
                id={`${id}-graph`}
                allowDeselect={false}
                value={graph || ALL}
                data={[
                  { value: ALL, label: t('allGraphs') },
                  ...graphs.map((record) => ({
                    value: record.name,
                    label: t('graphSize', {
                      name: graphName(record),
                      count: record.nodes,
                      nodes: count(record.nodes),
                    }),
                  })),
                ]}
                onChange={(value) => setView({ graph: value === ALL || value === null ? '' : value })}
              />
            </>
          )}
        </div>
      </Collapse>
      {!isOpen && chips.length > 0 && (
        <div className={classes['chips']}>
          {chips.map(({ text, remove }) => (
            <span key={text} className={classes['chip']} title={filter.stack || text}>
              <span>{text}</span>
              <ActionIcon
                size={16}
                color="blue"
                radius="xl"
                aria-label={t('without', { filter: text })}
                onClick={remove}
              >
                <IconX size={11} />
              </ActionIcon>
            </span>
          ))}
        </div>
      )}
    </>
  )
}
