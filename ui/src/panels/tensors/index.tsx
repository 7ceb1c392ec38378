import { Button, Skeleton, TextInput, Tooltip } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import {
  IconAlertTriangle,
  IconArrowUpRight,
  IconListNumbers,
  IconNumber0,
  IconSearch,
  IconTable,
  IconTrendingUp,
} from '~/parts/icons'
import { useCallback, useMemo, useState, type ReactNode } from 'react'
import { useTranslation } from 'react-i18next'
import { useSession } from '~/api/queries'
import { ActionButton } from '~/parts/ActionButton'
import { Failure, Notice } from '~/parts/Notice'
import { count } from '~/parts/numbers'
import { useActions } from '~/state/useActions'
import { WAYS, type Column, type Way } from './columns'
import { useFirstPage, type TableQuery } from './queries'
import { Table } from './Table'
import classes from './tensors.module.css'
import { tensorsTexts } from './texts'

const ICONS: Record<Way['id'], ReactNode> = {
  order: <IconListNumbers size={16} />,
  bad: <IconAlertTriangle size={16} />,
  gradient: <IconTrendingUp size={16} />,
  zeros: <IconNumber0 size={16} />,
  large: <IconArrowUpRight size={16} />,
}

/** The statistics of all tensors of the step shown, sorted and filtered by the server. */
export default function Tensors() {
  const { t } = useTranslation(tensorsTexts)
  const { data: session } = useSession()
  const [filter, setFilter] = useState('')
  const [words] = useDebouncedValue(filter.trim(), 250)
  const [order, setOrder] = useState<Pick<TableQuery, 'sort' | 'descending'>>({
    sort: 'position',
    descending: false,
  })
  const query = useMemo(() => ({ query: words, ...order }), [words, order])
  const { data, error, isPending, refetch } = useFirstPage(query)
  const step = session?.step ?? 0
  const take = useCallback((way: Way) => {
    setOrder({ sort: way.sort, descending: way.isDescending })
    setFilter(way.query ?? '')
  }, [])
  useActions(
    useMemo(
      () =>
        WAYS.map((way) => ({
          id: `tensors.${way.id}`,
          label: t(`ways.${way.id}`),
          group: t('group'),
          run: () => take(way),
        })),
      [take, t],
    ),
  )
  const sortBy = ({ id, isNumber }: Column) =>
    // Numbers are sorted by the largest first.
    setOrder((now) => ({
      sort: id,
      descending: now.sort === id ? !now.descending : isNumber && id !== 'position',
    }))
  return (
    <div className="fill" data-testid="panel-tensors">
      <div className={`heading ${classes['bar']}`}>
        <Tooltip label={t('hint')}>
          <TextInput
            aria-label={t('filter')}
            placeholder={t('filterHint')}
            leftSection={<IconSearch size={13} />}
            flex="1 1 130px"
            miw={130}
            maw={320}
            value={filter}
            onChange={(event) => setFilter(event.currentTarget.value)}
          />
        </Tooltip>
        {WAYS.map((way) => (
          <ActionButton
            key={way.id}
            id={`tensors.${way.id}`}
            icon={ICONS[way.id]}
            withLabel={way.id === 'bad' || way.id === 'gradient' || way.id === 'zeros'}
          />
        ))}
        {data && (
          <span className={classes['total']} data-testid="tensors-total">
            {t('total', { count: data.total, number: count(data.total) })}
          </span>
        )}
      </div>
      {error ? (
        <Failure error={error} retry={() => void refetch()} />
      ) : isPending ? (
        <Skeleton height="100%" radius={0} />
      ) : data.total > 0 ? (
        <Table key={JSON.stringify(query)} query={query} total={data.total} step={step} onSort={sortBy} />
      ) : words ? (
        <Notice icon={<IconTable size={32} />} title={t('noMatch')}>
          <Button variant="default" onClick={() => setFilter('')}>
            {t('clear')}
          </Button>
        </Notice>
      ) : (
        <Notice icon={<IconTable size={32} />} title={t('empty', { step })}>
          {session?.capabilities.live ? t('emptyLive') : step === 0 ? t('emptyZero') : t('emptyDump')}
        </Notice>
      )}
    </div>
  )
}
